"""The doors of the sandbox: its login, and documents in submissions."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlencode

from tests.growth.door import PUBLIC_LIMIT, Door
from tests.growth.installation import Installation, Request
from tests.growth.pages import FORM_TYPE, list_form_shapes
from tests.growth.shapes import Make, list_body_shapes, make_entries, repeat
from tests.harness.environments import SANDBOX_CLIENT
from tests.harness.paths import ROOT

#: Half of what a document may have: growth shows there too. Clients cannot reach a sandbox in
#: production, so that the time of the largest document matters less.
DOCUMENT_LIMIT = 150 * 1024
XML = (
    '<Invoice xmlns="urn:oasis:names:specification:ubl:schema:xsd:Invoice-2" '
    'xmlns:cbc="urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2">'
)
LOGIN = {
    "grant_type": "client_credentials",
    "client_id": SANDBOX_CLIENT["PORTAL_CLIENT_ID"],
    "client_secret": SANDBOX_CLIENT["PORTAL_CLIENT_SECRET"],
    "scope": "InvoicingAPI",
}


def list_sandbox_doors(installation: Installation) -> Iterator[Door]:
    for name, (make, kind) in list_form_shapes().items():
        yield _make_login_door(installation, name, make, kind)
    headers = _log_in(installation)
    for name, (make, form) in _list_documents().items():
        cost = _submit(installation, headers, make, form)
        yield Door(f"sandbox document: {name}", cost, DOCUMENT_LIMIT)


def _make_login_door(installation: Installation, name: str, make: Make, kind: str) -> Door:
    start = urlencode(LOGIN).encode() + b"&a="

    def cost(size: int) -> float:
        headers = [("Content-Type", kind)]
        return installation.portal.measure(
            [Request("POST", "/connect/token", headers, start + make(size))]
        )

    return Door(f"sandbox login: {name}", cost, PUBLIC_LIMIT)


def _log_in(installation: Installation) -> list[tuple[str, str]]:
    """Return the headers of a client that acts for the company."""
    headers = [("Content-Type", FORM_TYPE), ("onbehalfof", "C20880050010")]
    request = Request("POST", "/connect/token", headers, urlencode(LOGIN).encode())
    token = json.loads(installation.portal.send(request).body)["access_token"]
    return [("Content-Type", "application/json"), ("Authorization", f"Bearer {token}")]


def _submit(
    installation: Installation, headers: list[tuple[str, str]], make: Make, form: str
) -> Callable[[int], float]:
    """Return the Cost of a submission and of the validation, which the next request causes."""

    def cost(size: int) -> float:
        document = make(size)
        entry = {
            "format": form,
            "document": base64.b64encode(document).decode(),
            "documentHash": hashlib.sha256(document).hexdigest(),
            "codeNumber": "INV-1",
        }
        body = json.dumps({"documents": [entry]}).encode()
        path = "/api/v1.0/documentsubmissions/"
        return installation.portal.measure(
            [Request("POST", path, headers, body), Request("GET", "/_sandbox/clock")]
        )

    return cost


def _list_documents() -> dict[str, tuple[Make, str]]:
    """Return {shape: (Make, format)} of documents."""
    document = json.loads((ROOT / "tests/documents/everything.json").read_bytes())
    [invoice] = document["Invoice"]

    def make_lines(size: int) -> bytes:
        lines = make_entries(invoice["InvoiceLine"][0], size)
        return json.dumps({**document, "Invoice": [{**invoice, "InvoiceLine": lines}]}).encode()

    def wrap(piece: str) -> Make:
        return lambda size: f"{XML}{repeat(piece, size)}</Invoice>".encode()

    shapes: dict[str, tuple[Make, str]] = {
        name: (make, "JSON")
        for name, make in list_body_shapes({"Invoice": [invoice]}, set())
        if not name.startswith("/Invoice/")
    }
    return {
        **shapes,
        "lines": (make_lines, "JSON"),
        "elements": (wrap("<cbc:ID>1</cbc:ID>"), "XML"),
        "other elements": (wrap("<a/>"), "XML"),
        "nested elements": (wrap("<a>"), "XML"),
        "comments": (wrap("<!-- -->"), "XML"),
        "references to characters": (wrap("&#65;"), "XML"),
        "text between elements": (wrap("a<a/>"), "XML"),
        "attributes": (
            lambda size: _make_element(f"a{n}=''" for n in range(size // 9)),
            "XML",
        ),
        "namespaces": (
            lambda size: _make_element(f"xmlns:a{n}='b'" for n in range(size // 16)),
            "XML",
        ),
        "entities": (_make_entities, "XML"),
    }


def _make_element(attributes: Iterable[str]) -> bytes:
    return f"{XML}<a {' '.join(attributes)}/></Invoice>".encode()


def _make_entities(size: int) -> bytes:
    declaration = f'<!DOCTYPE a [<!ENTITY b "{"b" * 1000}">]>'
    return f"{declaration}{XML}{repeat('&b;', size)}</Invoice>".encode()
