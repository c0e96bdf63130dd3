"""The doors of the API, derived from the table of operations and the schemas of their bodies."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from service import members, schema
from service.api.operation import Operation, QueryParameter
from service.api.table import OPERATIONS
from tests.growth.door import BODY_LIMIT, HEADER_LIMIT, Door
from tests.growth.installation import Installation, Request
from tests.growth.shapes import ASCII_PIECES, Make, list_body_shapes, repeat
from tests.growth.special import list_special_shapes
from tests.harness.bodies import example
from tests.harness.paths import ROOT

#: A code in a body, in place of which each request has another one.
CODE = 987_654_321
_codes = itertools.count(1000)
HEADER_PIECES = ("letters", "digits", "blanks", "commas", "addresses", "tags", "cookies", "quotes")
QUERY_PIECES = ("letters", "digits", "blanks", "commas", "escapes", "quotes", "brackets")
#: Members that make the service send a document.
SENDING = ("submitImmediately", "isReady")
#: Names of headers in the code of the service, and further ones that aiohttp reads.
_HEADER = re.compile(r'(?:header\(request, |request\.headers(?:\.get\(|\[))"([A-Za-z-]+)"')
FURTHER_HEADERS = (
    "Cookie Host Accept-Encoding Connection Forwarded If-Modified-Since Range Upgrade "
    "User-Agent X-Portal-Key X-API-Key Idempotency-Key"
)


def list_operation_doors(installation: Installation) -> Iterator[Door]:
    yield from _list_body_doors(installation)
    yield from _list_query_doors(installation)
    for operation in OPERATIONS:
        if "{" in operation.path:
            yield from list_path_doors(installation, operation.method, operation.path)
    yield from _list_header_doors(installation)
    yield from _list_chunk_doors(installation)


# Bodies


def find_operations() -> dict[str, Operation]:
    """Return {schema of a body: an operation that reads it}."""
    found: dict[str, Operation] = {}
    for operation in OPERATIONS:
        if operation.body:
            found.setdefault(operation.body, operation)
    return found


def _list_body_doors(installation: Installation) -> Iterator[Door]:
    known: set[str] = set()
    special = list_special_shapes()
    for name, operation in find_operations().items():
        shapes = [
            (shape, make, BODY_LIMIT) for shape, make in list_body_shapes(make_body(name), known)
        ]
        shapes += [(shape, *each) for shape, each in special.get(name, {}).items()]
        path = fill_path(installation, operation.path)
        for shape, make, limit in shapes:
            door = f"{operation.method} {operation.path}: {shape}"
            yield Door(door, _send_body(installation, operation.method, path, make), limit)


def _send_body(
    installation: Installation, method: str, path: str, make: Make
) -> Callable[[int], float]:
    def cost(size: int) -> float:
        body = make(size).replace(str(CODE).encode(), str(next(_codes)).encode(), 1)
        return installation.service.measure([Request(method, path, installation.headers(), body)])

    return cost


def make_body(name: str) -> dict[str, Any]:
    """Return a body with every member of a schema; those of the example have good values."""
    resolver = schema.REGISTRY.resolver(f"{name}.json")
    body = merge(_fill(resolver, schema.ALL[name]), example(name))
    for member in ("code", "adjustmentNoteCode"):
        if member in body:
            body[member] = CODE
    return {member: value for member, value in body.items() if member not in SENDING}


def merge(full: Any, good: Any) -> Any:
    """Return a value with the members of both, those of `good` first."""
    if isinstance(full, dict) and isinstance(good, dict):
        return {**good, **{name: merge(full[name], good.get(name, full[name])) for name in full}}
    if isinstance(full, list) and isinstance(good, list) and full and good:
        return [merge(full[0], entry) for entry in good]
    return good


def _fill(resolver: members.Resolver, part: dict[str, Any]) -> Any:
    """Return a value with all that a part of a schema describes."""
    parts = list(members.expand(resolver, part))
    described = {name: each for _, each in parts for name, each in each.items()}
    if "properties" in described:
        return {
            name: _fill(scope, each)
            for scope, part in parts
            for name, each in part.get("properties", {}).items()
        }
    if "items" in described:
        return [_fill(*next((scope, part["items"]) for scope, part in parts if "items" in part))]
    if choices := described.get("enum"):
        return choices[0]
    kind = described.get("type", "string")
    values = {"integer": 1, "number": 1, "boolean": True, "object": {"key": "text"}}
    return values.get(kind if isinstance(kind, str) else kind[0], "text")


# Query parameters, paths and headers


def _list_query_doors(installation: Installation) -> Iterator[Door]:
    seen: set[QueryParameter | str] = set()
    for operation in OPERATIONS:
        if operation.method != "GET":
            continue
        names = [each.name for each in operation.query]
        path = fill_path(installation, operation.path)
        for shape, make in list_query_shapes(names):
            name = f"GET {operation.path}?: {shape}"
            yield Door(name, _send_target(installation, f"{path}?", make), HEADER_LIMIT)
        for parameter in operation.query:
            if repr(parameter) in seen:
                continue
            seen.add(repr(parameter))
            for piece in QUERY_PIECES:
                text = f"{path}?{parameter.name.replace('[]', '[key]')}="
                yield Door(
                    f"GET {operation.path}?{parameter.name}=: {piece}",
                    _send_target(installation, text, make_text(ASCII_PIECES[piece])),
                    HEADER_LIMIT,
                )


def list_query_shapes(names: Sequence[str]) -> Iterator[tuple[str, Callable[[int], str]]]:
    """Yield the shapes of a query with many parameters."""
    first = names[0] if names else "page"
    yield "separators", lambda size: "&" * size
    yield "repeated parameter", lambda size: f"{first}=1&" * (size // (len(first) + 3))
    yield (
        "unknown parameters",
        lambda size: "&".join(f"{first[:-1]}{n}=1" for n in range(size // (len(first) + 6))),
    )
    yield (
        "metadata",
        lambda size: "&".join(f"metadata[key{n}]=a" for n in range(size // 19)),
    )


def list_path_doors(installation: Installation, method: str, path: str) -> Iterator[Door]:
    start = fill_path(installation, path.partition("{")[0])
    for name in ("digits", "letters", "escapes", "slashes"):
        cost = _send_target(installation, start, make_text(ASCII_PIECES[name]), method)
        yield Door(f"{method} {path}: {name}", cost, HEADER_LIMIT)


def make_text(piece: str) -> Callable[[int], str]:
    """Return a function from a size to a text of a piece, escaped as in URLs."""
    escaped = piece if "%" in piece else quote(piece, safe="/=&,.;")
    return lambda size: repeat(escaped, size)


def _send_target(
    installation: Installation, start: str, make: Callable[[int], str], method: str = "GET"
) -> Callable[[int], float]:
    """Return the Cost of a request whose path or query continues by a text."""
    headers = [*installation.headers(), ("Cookie", installation.session)]
    return lambda size: installation.service.measure(
        [Request(method, f"{start}{make(size)}", headers)]
    )


def fill_path(installation: Installation, path: str) -> str:
    """Return the path of an operation with the id of a record."""
    place = path.partition("/{")[0]
    path = path.replace("{id}", installation.ids.get(place, "1"))
    return re.sub(r"\{\w+\}", "1", path)


def list_headers() -> list[str]:
    """Return the names of all headers that the service or aiohttp reads."""
    sources = [path.read_text() for path in (ROOT / "service").rglob("*.py")]
    found = {name for source in sources for name in _HEADER.findall(source)}
    return sorted(found | set(FURTHER_HEADERS.split()))


def _list_header_doors(installation: Installation) -> Iterator[Door]:
    record = fill_path(installation, "/api/invoices/{id}")
    body = json.dumps({"reference": "a"}).encode()
    targets = [
        Request("GET", record),
        Request("PUT", record, body=body),
        Request("POST", "/api/validation/invoice-code", body=b'{"code":1}'),
        Request("GET", "/settings"),
    ]
    for name in list_headers():
        for piece in HEADER_PIECES:
            cost = _send_header(installation, targets, name, ASCII_PIECES[piece])
            yield Door(f"header {name}: {piece}", cost, HEADER_LIMIT)
    for shape, lines in {
        "many headers": lambda size: [(f"X-{n}", "a") for n in range(size // 10)],
        "repeated X-Forwarded-For": lambda size: [("X-Forwarded-For", "10.0.0.1")] * (size // 30),
        "repeated X-API-Key": lambda size: [("X-API-Key", "a")] * (size // 15),
    }.items():
        cost = _send_headers(installation, targets, lines)
        yield Door(f"headers: {shape}", cost, HEADER_LIMIT)


def _send_header(
    installation: Installation, targets: Sequence[Request], name: str, piece: str
) -> Callable[[int], float]:
    return _send_headers(installation, targets, lambda size: [(name, repeat(piece, size))])


def _send_headers(
    installation: Installation,
    targets: Sequence[Request],
    lines: Callable[[int], list[tuple[str, str]]],
) -> Callable[[int], float]:
    """Return the Cost of requests with headers, which replace those with the same name."""
    usual = [*installation.headers(), ("Cookie", installation.session)]

    def cost(size: int) -> float:
        chosen = lines(size)
        names = {name for name, _ in chosen}
        headers = [each for each in usual if each[0] not in names] + chosen
        return installation.service.measure(
            [Request(each.method, each.path, headers, each.body) for each in targets]
        )

    return cost


def _list_chunk_doors(installation: Installation) -> Iterator[Door]:
    for path in ("/api/invoices", "/sign-in"):

        def cost(size: int, path: str = path) -> float:
            headers = [*installation.headers(), ("Transfer-Encoding", "chunked")]
            body = b"1\r\n \r\n" * (size // 6) + b"0\r\n\r\n"
            return installation.service.measure([Request("POST", path, headers, body)])

        # A sixth is enough to measure growth. Others are served between the reads of a body.
        yield Door(f"POST {path}: chunks of one byte", cost, BODY_LIMIT // 6)
