"""Random malformed requests, derived from valid ones, for bench/fuzz.py."""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.bodies import VALID, load_bodies

from service.api.operation import INTEGRATION, Operation
from service.api.table import OPERATIONS

#: Name of a schema -> valid bodies as JSON text.
BODIES = {
    schema: [json.dumps(body) for _, body in sorted(bodies.items())]
    for schema, bodies in load_bodies(VALID, float).items()
}
#: Path of a creation -> path of the list that then contains the record.
CREATED = {
    each.path: each.path for each in OPERATIONS if each.method == "POST" and each.status == 201
}
CREATED |= {path: "/api/adjustment-notes" for path in CREATED if path.endswith("/adjustment-note")}
CREATIONS = [each for each in OPERATIONS if each.method == "POST" and each.path in CREATED]

TEXTS = (
    *("", " ", "0", "-1", "1", "true", "null", "x" * 300, "x" * 301, "x" * 3000, "é" * 320),
    *("👩‍🌾", "\u0000", "\ud800", "\u2028", "\ufeff", "١", "2026-02-30T00:00:00Z"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-31T09:30:00Z"),
    *("2026-13", "2026-01", "MYR", "USD", "INVOICE", "CREDIT_NOTE", "a@b", "../../etc", "%00"),
    *("'", "C1234567890", "900101105566", "https://127.0.0.1:9/"),
)
NUMBERS = (
    *(0, -1, 1, 7, 0.1, 1e-9, 48.505, 10**12, 10**12 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63),
    *(10**30, 10**39, -0.0, 100.005),
)
ODD = (
    *TEXTS,
    *NUMBERS,
    *(None, True, False, [], {}, [None], [[]], [{}]),
    *({"a": 1}, {"amount": 1}, {"percentage": 8}),
)
TOKENS = (
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"{", b"}", b"[", b'"', b",", b":", b"\\u0000"),
    *(b"\\ud800", b"1e400", b"NaN", b"//", b"\n"),
)
# Longer lists are not repeated: a body that takes this program long delays all other requests.
LONGEST_LIST = 10
#: Repeated bytes inside a body: depth, duplicate members, digits.
FILLINGS = (b"[", b'{"a":', b" ", b'"a":1,', b"9")
SEGMENTS = (
    *("0", "1", "-1", "0001", "1.0", "9223372036854775807", "9223372036854775808", "%D9%A1"),
    *("%00", "%FF", "%ED%A0%80", "..", ".", "", "%2F", "%2e%2e", "a" * 500, "export-all", "plan"),
    *("usr_" + "a" * 22, "org_" + "0" * 22, "%F0%9F%92%A5", "{id}", "*", "'", "1;a=b", "%"),
)
VALUES = (
    *SEGMENTS,
    *("100", "101", "10", "2", "-id", "id", "Valid", "Draft", "INVOICE"),
    *("2026-01-01T00:00:00Z", "a,b", "%25", "x" * 301),
)
METHODS = (
    *("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "TRACE", "CONNECT"),
    *("get", "PROPFIND", "X", "QUERY"),
)
FIELDS = (
    *("Content-Type: text/plain", "Content-Type: application/json; charset=nonsense"),
    *("Content-Type: \x80\x81", "Content-Type:", "Content-Encoding: gzip"),
    *("Content-Encoding: identity, br", "Transfer-Encoding: gzip", "Expect: foo"),
    *("Expect: 100-continue", "Idempotency-Key: " + "k" * 255, "Idempotency-Key: " + "k" * 256),
    *("Idempotency-Key: \xff\xfe", "Idempotency-Key: a\x00b", "Idempotency-Key: one"),
    *("Idempotency-Key: two", "Idempotency-Key:", "If-Match: *", 'If-Match: "x"'),
    *("If-None-Match: *", "If-None-Match: \xff", "X-Request-Id: \xff"),
    *("X-Request-Id: " + "r" * 5000, "X-API-Key: second", "Connection: close", "Upgrade: h2c"),
    *("Range: bytes=0-1", "Accept: text/html", "Accept-Encoding: gzip", "Host: other"),
    *("Content-Length: 5", "A" * 9000 + ": b", "A: " + "b" * 9000, " folded", "No-Colon"),
    *("Cookie: a=b", "Content-Length: -1", "Content-Length: 99999999999999999999"),
    "Date: " + "1" * 8000,
)


@dataclass(frozen=True, slots=True)
class FuzzRequest:
    """A request: its operation, method and bytes. `is_whole`: the bytes are a complete request."""

    route: str
    method: str
    raw: bytes
    is_whole: bool = True


class RequestGenerator:
    """Generates random requests, the same ones for the same seed and ids."""

    def __init__(self, seed: str, keys: Sequence[str], ids: dict[str, list[Any]]) -> None:
        self.random = random.Random(seed)
        self._keys = keys
        self._ids = ids  # of existing records by path of their list; grows during the run

    def next_request(self) -> FuzzRequest:
        """Return the next request."""
        share = self.random.random()
        operation = self.random.choice(CREATIONS if self.random.random() < 0.2 else OPERATIONS)
        if share < 0.62:
            return self._build(operation, self._make_body(operation))
        if share < 0.74:
            return self._build(operation, self._corrupt_body(self._make_body(operation)))
        if share < 0.84:
            body = self._make_body(operation)
            fields = self.random.choices(FIELDS, k=self.random.randint(1, 2))
            return self._build(operation, body, fields)
        if share < 0.90:
            body = self._make_body(operation)
            return self._build(operation, body, method=self.random.choice(METHODS))
        if share < 0.95:
            return self._make_unknown_path()
        return self._corrupt_request(self._build(operation, self._make_body(operation)))

    def _build(
        self,
        operation: Operation,
        body: bytes | None,
        fields: Sequence[str] = (),
        method: str | None = None,
    ) -> FuzzRequest:
        method = method or operation.method
        path = self._make_path(operation.path) + self._make_query(operation)
        head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {self._pick_key()}"]
        head += [f"X-Portal-Key: {self._keys[-1]}"] if operation.surface == INTEGRATION else []
        head += fields
        if body is not None:
            is_typed = any(each.startswith("Content-Type") for each in fields)
            head += [] if is_typed else ["Content-Type: application/json"]
            head += [f"Content-Length: {len(body)}"]
        raw = "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + (body or b"")
        is_odd = any(each.startswith(("Content-Length", "Transfer-Encoding")) for each in fields)
        return FuzzRequest(f"{method} {operation.path}", method, raw, not is_odd)

    def _pick_key(self) -> str:
        """Return mostly the key of the first company, which has nearly all records."""
        return self._keys[self.random.random() < 0.1]

    def _make_path(self, path: str) -> str:
        place = path.partition("/{")[0]
        known = self._ids.get(place)

        def replace(_: re.Match[str]) -> str:
            if known and self.random.random() < 0.75:
                return str(self.random.choice(known))
            return self.random.choice(SEGMENTS)

        return re.sub(r"\{\w+\}", replace, path)

    def _make_query(self, operation: Operation) -> str:
        if not operation.query or self.random.random() < 0.3:
            return ""
        names = [parameter.name for parameter in operation.query]
        chosen = self.random.choices([*names, "unknown"], k=self.random.randint(1, 3))
        return "?" + "&".join(f"{name}={self.random.choice(VALUES)}" for name in chosen)

    def _make_body(self, operation: Operation) -> bytes | None:
        """Return a valid body of the operation with up to four changes, None if it has no body."""
        if not operation.body:
            return None
        body = json.loads(self.random.choice(BODIES[operation.body]))
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 4))):
            self._change(body)
        self._refresh(body)
        text = json.dumps(replace_urls(body), ensure_ascii=self.random.random() < 0.9)
        return text.encode("utf-8", "surrogatepass")

    def _change(self, body: dict[str, Any]) -> None:
        """Change one member or entry at any depth."""
        places: list[tuple[Any, Any]] = list(find_places(body)) or [(body, "type")]
        holder, key = self.random.choice(places)
        act = self.random.random()
        if act < 0.15 and isinstance(holder, dict):
            holder.pop(key, None)
        elif act < 0.25 and isinstance(holder, dict):
            holder[self.random.choice(TEXTS)] = self._pick_odd()
        elif act < 0.35 and isinstance(holder, list) and 0 < len(holder) <= LONGEST_LIST:
            holder *= self.random.choice((0, 2, 2, 2, 50, 50, 50, 1001))
        elif isinstance(holder, dict) or key < len(holder):
            holder[key] = self._pick_odd()

    def _pick_odd(self) -> Any:
        return json.loads(json.dumps(self.random.choice(ODD)))

    def _refresh(self, body: dict[str, Any]) -> None:
        """Replace codes by mostly unused ones, and some ids by existing ones."""
        for name in ("code", "adjustmentNoteCode"):
            if isinstance(body.get(name), int) and self.random.random() < 0.9:
                body[name] = self.random.randrange(1, 10**12)
        if "invoiceIds" in body and self.random.random() < 0.5:
            body["invoiceIds"] = self.random.choices(self._ids["/api/invoices"], k=2)
        if "members" in body and isinstance(body["members"], list) and self.random.random() < 0.5:
            users = self.random.choices(self._ids["/api/integrations/users"], k=2)
            body["members"] = [{"userId": user} for user in users]

    def _corrupt_body(self, body: bytes | None) -> bytes | None:
        """Change, repeat, cut or fill the bytes in one to four places."""
        if not body:
            return body
        for _ in range(self.random.randint(1, 4)):
            body = self._corrupt_bytes(body) or b" "
        return body

    def _corrupt_bytes(self, body: bytes) -> bytes:
        start, end = sorted(self.random.randrange(len(body) + 1) for _ in range(2))
        head, tail = body[:start], body[start:]
        match self.random.randrange(6):
            case 0:
                return head + self.random.choice(TOKENS) + tail
            case 1:
                return head + tail[1:]
            case 2:
                return head
            case 3:
                return head + body[start:end] * 3 + body[end:]
            case 4:
                return head + self.random.randbytes(3) + tail
            case _:
                count = self.random.choice((3, 3, 40, 40, 60_000))
                return head + self.random.choice(FILLINGS) * count + tail

    def _make_unknown_path(self) -> FuzzRequest:
        """Return a request for a random path with a random method and version."""
        segments = ("api", "invoices", *SEGMENTS)
        path = "/".join(["", *self.random.choices(segments, k=self.random.randint(1, 5))])
        method = self.random.choice(METHODS)
        version = self.random.choice(("1.1", "1.1", "1.0", "2.0", "0.9", "3"))
        lines = [f"{method} {path} HTTP/{version}", "Host: x", f"X-API-Key: {self._pick_key()}"]
        raw = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
        return FuzzRequest("unknown path", method, raw)

    def _corrupt_request(self, request: FuzzRequest) -> FuzzRequest:
        """Change bytes of a request, mostly of its head."""
        raw = request.raw
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randrange(min(len(raw), 200) + 1)
            put = self.random.choice((*TOKENS, b"\r\n", b"\r", b" ", self.random.randbytes(5)))
            raw = raw[:at] + put + raw[at + self.random.randint(0, 3) :]
        return FuzzRequest("bytes", request.method, raw, False)


def find_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (holder, key) of every member and entry at any depth."""
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    for key, member in members:
        yield value, key
        yield from find_places(member)


def replace_urls(value: Any) -> Any:
    """Return the value with all HTTP addresses replaced by one on this machine."""
    if isinstance(value, dict):
        return {name: replace_urls(member) for name, member in value.items()}
    if isinstance(value, list):
        return [replace_urls(entry) for entry in value]
    if isinstance(value, str) and value.lower().startswith("http"):
        return "http://127.0.0.1:9/"
    return value
