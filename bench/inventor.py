"""Requests that nobody would send, thought out at random from the good ones: what bench/fuzz.py asks."""

import json
import random
import re
from dataclasses import dataclass

from ground import ROOT

from service.api.operations import INTEGRATION, OPERATIONS, QUERY

#: schema -> good bodies of it, as text.
BODIES = {}
for _path in sorted((ROOT / "tests" / "bodies").glob("*/good/*.json")):
    BODIES.setdefault(_path.parent.parent.name, []).append(_path.read_text())
#: The path of a creation -> where the record is then.
CREATED = {
    each.path: each.path for each in OPERATIONS if each.method == "POST" and each.status == 201
}
CREATED |= {path: "/api/adjustment-notes" for path in CREATED if path.endswith("/adjustment-note")}
CREATIONS = [each for each in OPERATIONS if each.method == "POST" and each.path in CREATED]

TEXTS = (
    "", " ", "0", "-1", "1", "true", "null", "x" * 300, "x" * 301, "x" * 3000, "é" * 320, "👩‍🌾", "\u0000", "\ud800",
    "\u2028", "\ufeff", "١", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
    "2026-01-31T09:30:00Z", "2026-13", "2026-01", "MYR", "USD", "INVOICE", "CREDIT_NOTE", "a@b", "../../etc", "%00", "'",
    "C1234567890", "900101105566", "https://127.0.0.1:9/",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 7, 0.1, 1e-9, 48.505, 10**12, 10**12 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 10**30, 10**39, -0.0, 100.005,
)  # fmt: skip
ODD = (
    *TEXTS,
    *NUMBERS,
    None,
    True,
    False,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"a": 1},
    {"amount": 1},
    {"percentage": 8},
)
TOKENS = (
    b"\x00", b"\xff", b"\xed\xa0\x80", b"{", b"}", b"[", b'"', b",", b":", b"\\u0000", b"\\ud800", b"1e400", b"NaN", b"//", b"\n",
)  # fmt: skip
# That is made longer: a body that takes this program long would make all others seem late
LONGEST_LIST = 10
#: What fills a body: depth, members twice, digits.
FILLINGS = (b"[", b'{"a":', b" ", b'"a":1,', b"9")
SEGMENTS = (
    "0", "1", "-1", "0001", "1.0", "9223372036854775807", "9223372036854775808", "%D9%A1", "%00", "%FF", "%ED%A0%80",
    "..", ".", "",
    "%2F", "%2e%2e", "a" * 500, "export-all", "plan", "usr_" + "a" * 22, "org_" + "0" * 22, "%F0%9F%92%A5",
    "{id}", "*", "'", "1;a=b", "%",
)  # fmt: skip
VALUES = (
    *SEGMENTS, "100", "101", "10", "2", "-id", "id", "Valid", "Draft", "INVOICE", "2026-01-01T00:00:00Z", "a,b", "%25", "x" * 301,
)  # fmt: skip
METHODS = (
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "PATCH",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "PROPFIND",
    "X",
    "QUERY",
)
FIELDS = (
    "Content-Type: text/plain", "Content-Type: application/json; charset=nonsense", "Content-Type: \x80\x81", "Content-Type:",
    "Content-Encoding: gzip", "Content-Encoding: identity, br", "Transfer-Encoding: gzip", "Expect: foo", "Expect: 100-continue",
    "Idempotency-Key: " + "k" * 255, "Idempotency-Key: " + "k" * 256, "Idempotency-Key: \xff\xfe", "Idempotency-Key: a\x00b",
    "Idempotency-Key: one", "Idempotency-Key: two", "Idempotency-Key:", "If-Match: *", 'If-Match: "x"', "If-None-Match: *",
    "If-None-Match: \xff", "X-Request-Id: \xff", "X-Request-Id: " + "r" * 5000, "X-API-Key: second", "Connection: close",
    "Upgrade: h2c",
    "Range: bytes=0-1", "Accept: text/html", "Accept-Encoding: gzip", "Host: other", "Content-Length: 5",
    "A" * 9000 + ": b", "A: " + "b" * 9000,
    " folded", "No-Colon", "Cookie: a=b", "Content-Length: -1", "Content-Length: 99999999999999999999", "Date: " + "1" * 8000,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sent:
    """A request: what it is of, its method, its bytes, and whether they are sure to be a whole one."""

    route: str
    method: str
    raw: bytes
    is_whole: bool = True


class Inventor:
    """Thinks requests out, always the same ones for a seed and the same ids."""

    def __init__(self, seed, keys, ids):
        self.chance = random.Random(seed)
        self._keys = keys
        self._ids = ids  # of records that are there, by place; grows

    def request(self):
        """A Sent."""
        share = self.chance.random()
        operation = self.chance.choice(CREATIONS if self.chance.random() < 0.2 else OPERATIONS)
        if share < 0.62:
            return self._of(operation, self._body(operation), fields=())
        if share < 0.74:
            return self._of(operation, self._bytes(self._body(operation)), fields=())
        if share < 0.84:
            return self._of(
                operation,
                self._body(operation),
                fields=self.chance.choices(FIELDS, k=self.chance.randint(1, 2)),
            )
        if share < 0.90:
            return self._of(
                operation, self._body(operation), method=self.chance.choice(METHODS), fields=()
            )
        if share < 0.95:
            return self._lost()
        return self._broken(self._of(operation, self._body(operation), fields=()))

    def _of(self, operation, body, fields, method=None):
        method = method or operation.method
        path = self._path(operation.path) + self._query(operation)
        head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {self._company()}"]
        head += [f"X-Portal-Key: {self._keys[-1]}"] if operation.surface == INTEGRATION else []
        head += fields
        if body is not None:
            typed = any(each.startswith("Content-Type") for each in fields)
            head += [
                *([] if typed else ["Content-Type: application/json"]),
                f"Content-Length: {len(body)}",
            ]
        raw = "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + (body or b"")
        strange = any(each.startswith(("Content-Length", "Transfer-Encoding")) for each in fields)
        return Sent(f"{method} {operation.path}", method, raw, not strange)

    def _company(self):
        # The second one's own are the fewest, so that it finds nothing
        return self._keys[self.chance.random() < 0.1]

    def _path(self, path):
        place = path.partition("/{")[0]
        known = self._ids.get(place)

        def part(_):
            if known and self.chance.random() < 0.75:
                return str(self.chance.choice(known))
            return self.chance.choice(SEGMENTS)

        return re.sub(r"\{\w+\}", part, path)

    def _query(self, operation):
        if not operation.query or self.chance.random() < 0.3:
            return ""
        names = [QUERY[name][0] for name in operation.query]
        chosen = self.chance.choices([*names, "unknown"], k=self.chance.randint(1, 3))
        return "?" + "&".join(f"{name}={self.chance.choice(VALUES)}" for name in chosen)

    def _body(self, operation):
        """The bytes of a good body of the operation with up to four changes; None where it has none."""
        if not operation.body:
            return None
        body = json.loads(self.chance.choice(BODIES[operation.body]))
        for _ in range(self.chance.choice((0, 0, 1, 1, 2, 4))):
            self._change(body)
        self._freshen(body)
        return json.dumps(harmless(body), ensure_ascii=self.chance.random() < 0.9).encode(
            "utf-8", "surrogatepass"
        )

    def _change(self, body):
        holder, key = self.chance.choice(list(_places(body)) or [(body, "type")])
        act = self.chance.random()
        if act < 0.15 and isinstance(holder, dict):
            holder.pop(key, None)
        elif act < 0.25 and isinstance(holder, dict):
            holder[self.chance.choice(TEXTS)] = self._odd()
        elif act < 0.35 and isinstance(holder, list) and 0 < len(holder) <= LONGEST_LIST:
            holder *= self.chance.choice((0, 2, 2, 2, 50, 50, 50, 1001))
        elif isinstance(holder, dict) or key < len(holder):
            holder[key] = self._odd()

    def _odd(self):
        return json.loads(json.dumps(self.chance.choice(ODD)))

    def _freshen(self, body):
        """Mostly another code than the last, and now and then ids that are there."""
        for name in ("code", "adjustmentNoteCode"):
            if isinstance(body.get(name), int) and self.chance.random() < 0.9:
                body[name] = self.chance.randrange(1, 10**12)
        if "invoiceIds" in body and self.chance.random() < 0.5:
            body["invoiceIds"] = self.chance.choices(self._ids["/api/invoices"], k=2)
        if "members" in body and isinstance(body["members"], list) and self.chance.random() < 0.5:
            body["members"] = [
                {"userId": id}
                for id in self.chance.choices(self._ids["/api/integrations/users"], k=2)
            ]

    def _bytes(self, body):
        """Bytes with one to four places changed, doubled, cut or filled."""
        if body is None or not body:
            return body
        for _ in range(self.chance.randint(1, 4)):
            at, to = sorted(self.chance.randrange(len(body) + 1) for _ in range(2))
            body = (
                self.chance.choice(
                    (
                        lambda: body[:at] + self.chance.choice(TOKENS) + body[at:],
                        lambda: body[:at] + body[at + 1 :],
                        lambda: body[:at],
                        lambda: body[:at] + body[at:to] * 3 + body[to:],
                        lambda: body[:at] + self.chance.randbytes(3) + body[at:],
                        lambda: (
                            body[:at]
                            + self.chance.choice(FILLINGS)
                            * self.chance.choice((3, 3, 40, 40, 60_000))
                            + body[at:]
                        ),
                    )
                )()
                or b" "
            )
        return body

    def _lost(self):
        path = "/".join(
            ["", *self.chance.choices(("api", "invoices", *SEGMENTS), k=self.chance.randint(1, 5))]
        )
        method = self.chance.choice(METHODS)
        head = (
            f"{method} {path} HTTP/{self.chance.choice(('1.1', '1.1', '1.0', '2.0', '0.9', '3'))}"
        )
        raw = f"{head}\r\nHost: x\r\nX-API-Key: {self._company()}\r\n\r\n".encode(
            "latin-1", "replace"
        )
        return Sent("nowhere", method, raw)

    def _broken(self, sent):
        """The bytes of a request, changed also in the head."""
        raw = sent.raw
        for _ in range(self.chance.randint(1, 3)):
            at = self.chance.randrange(min(len(raw), 200) + 1)
            put = self.chance.choice((*TOKENS, b"\r\n", b"\r", b" ", self.chance.randbytes(5)))
            raw = raw[:at] + put + raw[at + self.chance.randint(0, 3) :]
        return Sent("bytes", sent.method, raw, False)


def _places(value):
    """(holder, key) of every member and entry at any depth."""
    members = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, member in list(members):
        yield value, key
        yield from _places(member)


def harmless(value):
    """No address that is not on this machine."""
    if isinstance(value, dict):
        return {name: harmless(member) for name, member in value.items()}
    if isinstance(value, list):
        return [harmless(entry) for entry in value]
    return (
        "http://127.0.0.1:9/"
        if isinstance(value, str) and value.lower().startswith("http")
        else value
    )
