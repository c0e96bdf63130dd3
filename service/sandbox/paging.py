"""pageNo and pageSize. Portal: 5"""

from multidict import CIMultiDict

from .answers import bad_argument

MAX_SIZE = 100


def query_of(request):
    """The query; the portal's framework does not mind the case of names."""
    return CIMultiDict(request.query)


def page_of(query):
    """(size, rows to skip). Raises Refusal."""
    size = number(query, "pageSize", MAX_SIZE)
    if not 1 <= size <= MAX_SIZE:
        raise bad_argument("pageSize", f"Page size must be between 1 and {MAX_SIZE}.")
    page = number(query, "pageNo", 1)
    if not 1 <= page <= 10**6:
        raise bad_argument("pageNo", "Page number must be 1 or more.")
    return size, (page - 1) * size


def number(query, name, default):
    text = query.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise bad_argument(name, f"{name} is not a number.")
    return int(text)
