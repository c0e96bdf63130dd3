"""Pagination by pageNo and pageSize. Portal: 5"""

from collections.abc import Mapping

from aiohttp import web
from multidict import CIMultiDict

from .answers import bad_argument

MAX_SIZE = 100
MOST_PAGES = 10**6


def read_query(request: web.Request) -> CIMultiDict[str]:
    """Return the query. Parameter names are case-insensitive, as in the portal."""
    return CIMultiDict(request.query)


def read_page(query: Mapping[str, str]) -> tuple[int, int]:
    """Return (page size, rows to skip). Pages 0 and 1 are the first. Raises Refusal. Portal: 5"""
    size = read_number(query, "pageSize", MAX_SIZE)
    if not 1 <= size <= MAX_SIZE:
        raise bad_argument("pageSize", f"Page size must be between 1 and {MAX_SIZE}.")
    page = read_number(query, "pageNo", 1)
    if page > MOST_PAGES:
        raise bad_argument("pageNo", f"Page number must be at most {MOST_PAGES}.")
    return size, max(0, page - 1) * size


def read_number(query: Mapping[str, str], name: str, default: int) -> int:
    """Return a natural number of the query. Raises Refusal."""
    text = query.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise bad_argument(name, f"{name} is not a number.")
    return int(text)
