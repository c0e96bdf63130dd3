"""The doors of functions: responses of the portal, documents and code lists."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from multidict import CIMultiDict

from service.commands import codes
from service.documents.ubl import reader
from service.errors import OperatorError
from service.portal import responses, transport
from service.portal.errors import PortalError
from service.submission.following import document_comparison
from tests.growth.door import Door
from tests.growth.shapes import PIECES, list_body_shapes, make_entries, repeat
from tests.harness.paths import ROOT

#: A quarter of what is read of a response: growth shows there too, in a quarter of the time.
PORTAL_LIMIT = transport.MOST_BYTES // 4
#: The largest header of a response that aiohttp accepts.
PORTAL_HEADER_LIMIT = 8_000
CODE_FILE_LIMIT = 256 * 1024
DOCUMENT_LIMIT = 150 * 1024
UUID = "F9D425P6DS7D8IU"
ROW = {
    "uuid": UUID,
    "submissionUid": "HJSD135P2S7D8IU",
    "longId": "LIJAF97HJJKH8298KHADH09908570FDKK9S2LSIU",
    "internalId": "INV-1",
    "typeName": "Invoice",
    "typeVersionName": "1.0",
    "issuerTin": "C20880050010",
    "supplierTin": "C20880050010",
    "buyerName": "Aminah",
    "dateTimeIssued": "2026-01-31T09:30:00Z",
    "dateTimeReceived": "2026-01-31T09:30:00.123Z",
    "status": "Valid",
    "total": 10.5,
}
ERROR = {
    "code": "BadStructure",
    "message": "wrong",
    "propertyPath": "a.b",
    "details": [
        {"code": "CV1", "message": "wrong", "innerError": [{"errorCode": "X", "error": "a"}]}
    ],
    "errors": {"field": ["wrong"]},
}
Reader = Callable[[responses.PortalResponse], object]
#: Reader of a response -> (function, status, a good body).
READERS: dict[str, tuple[Reader, int, dict[str, Any]]] = {
    "receipt": (
        responses.receipt,
        202,
        {
            "submissionUid": "HJSD135P2S7D8IU",
            "acceptedDocuments": [{"uuid": UUID, "invoiceCodeNumber": "INV-1"}],
            "rejectedDocuments": [{"invoiceCodeNumber": "INV-2", "error": ERROR}],
        },
    ),
    "submission_page": (
        partial(responses.submission_page, uid="HJSD135P2S7D8IU"),
        200,
        {
            "submissionUid": "HJSD135P2S7D8IU",
            "documentCount": 1,
            "overallStatus": "in progress",
            "dateTimeReceived": "2026-01-31T09:30:00Z",
            "documentSummary": [ROW],
        },
    ),
    "listing_page": (
        responses.listing_page,
        200,
        {"result": [ROW], "metadata": {"totalCount": 1, "totalPages": 1}},
    ),
    "details": (
        partial(responses.details, uuid=UUID),
        200,
        {
            **ROW,
            "validationResults": {
                "status": "Invalid",
                "validationSteps": [{"name": "a", "status": "Invalid", "error": ERROR}],
            },
        },
    ),
    "raw": (partial(responses.raw, uuid=UUID), 200, {**ROW, "document": "{}"}),
    "cancelled": (
        partial(responses.cancelled, uuid=UUID),
        200,
        {"uuid": UUID, "status": "Cancelled", "error": ERROR},
    ),
    "known_tin": (responses.known_tin, 200, {"tin": "C20880050010"}),
    "login": (responses.login, 200, {"access_token": "a.b.c", "expires_in": 3600}),
    "read": (
        lambda response: responses.read(response, responses.receipt),
        400,
        {"error": ERROR},
    ),
}

#: Errors for input that is invalid.
EXPECTED = (PortalError, OperatorError, ValueError, LookupError, TypeError, AttributeError)


def measure(work: Callable[[], object]) -> float:
    """Return the processor time of a function in seconds. Errors for invalid input are expected."""
    began = time.process_time()
    with suppress(*EXPECTED):
        work()
    return time.process_time() - began


def list_direct_doors() -> Iterator[Door]:
    known: set[str] = set()
    yield from _list_portal_doors(known)
    yield from _list_header_doors()
    yield from _list_document_doors(known)
    yield from _list_code_doors(known)


def _make_response(raw: bytes, status: int = 200, **headers: str) -> responses.PortalResponse:
    given = {"Content-Type": "application/json", **headers}
    named = CIMultiDict({name.replace("_", "-"): text for name, text in given.items()})
    return responses.PortalResponse("submit", status, named, raw, datetime.now(UTC))


def _list_portal_doors(known: set[str]) -> Iterator[Door]:
    """Yield the readers of responses. `known` are the shapes that other doors have."""
    for name, (read, status, body) in READERS.items():
        for shape, make in list_body_shapes(body, known):

            def cost(
                size: int,
                make: Callable[[int], bytes] = make,
                read: Reader = read,
                status: int = status,
            ) -> float:
                response = _make_response(make(size), status)
                return measure(lambda: read(response))

            yield Door(f"portal {name}: {shape}", cost, PORTAL_LIMIT)
    pieces = {
        **PIECES,
        "pairs": '"uuid":"a","invoiceCodeNumber":"1"}',
        "names": '"uuid":"',
        "escapes": '"uuid":"\\\\',
        "uuids": '"uuid":"a",',
    }
    for piece_name, piece in pieces.items():

        def sight(size: int, piece: str = piece) -> float:
            raw = repeat(piece, size).encode()
            return measure(lambda: responses.sightings_in(raw))

        yield Door(f"portal sightings_in: {piece_name}", sight, PORTAL_LIMIT)


def _list_header_doors() -> Iterator[Door]:
    """Yield the headers of the portal that are read."""
    readers: dict[str, Callable[[responses.PortalResponse], object]] = {
        "Date": lambda response: response.date,
        "Retry_After": lambda response: responses.read(response, responses.known_tin),
        "correlationId": lambda response: response.correlation_id,
        "Content_Type": lambda response: (response.json, response.is_page),
    }
    for name, read in readers.items():
        for piece_name, piece in PIECES.items():

            def cost(size: int, name: str = name, read: Any = read, piece: str = piece) -> float:
                response = _make_response(b"", 429, **{name: repeat(piece, size)})
                return measure(lambda: read(response))

            yield Door(f"portal header {name}: {piece_name}", cost, PORTAL_HEADER_LIMIT)


def _list_document_doors(known: set[str]) -> Iterator[Door]:
    """Yield the readers of sent documents, and of the portal's copies of them."""
    sent = (ROOT / "tests/documents/everything.json").read_bytes()
    document = json.loads(sent)
    [invoice] = document["Invoice"]

    def make(size: int) -> bytes:
        lines = make_entries(invoice["InvoiceLine"][0], size)
        return json.dumps({**document, "Invoice": [{**invoice, "InvoiceLine": lines}]}).encode()

    def compare(size: int) -> float:
        copy = make(size).decode()
        return measure(lambda: document_comparison.copy_differences(make(size) + b" ", copy))

    def read(size: int) -> float:
        return measure(partial(reader.read, make(size)))

    yield Door("document read: many lines", read, DOCUMENT_LIMIT)
    yield Door("document copy: many lines", compare, PORTAL_LIMIT)
    for shape, body in list_body_shapes({"Invoice": [invoice]}, known):
        if not shape.startswith("/"):

            def read_copy(size: int, body: Callable[[int], bytes] = body) -> float:
                copy = body(size).decode(errors="replace")
                return measure(lambda: document_comparison.copy_differences(sent, copy))

            yield Door(f"document copy: {shape}", read_copy, PORTAL_LIMIT)


def _list_code_doors(known: set[str]) -> Iterator[Door]:
    """Yield the shapes of a file of import-codes."""
    entry = {"Code": "ZZ", "Name": "text", "valid_from": "2026-01-01"}
    shapes = dict(list_body_shapes({"rows": [entry]}, known))
    shapes["rows"] = lambda size: json.dumps(make_entries(entry, size)).encode()
    for shape, make in shapes.items():

        def cost(size: int, make: Callable[[int], bytes] = make) -> float:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "units.json")
                path.write_bytes(make(size))
                return measure(lambda: codes.read_codes(path))

        yield Door(f"import-codes: {shape}", cost, CODE_FILE_LIMIT)
