"""The fixtures of the sandbox tests: the smallest valid document and a client of the sandbox."""

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings
from tests.conftest import ClientFactory
from tests.harness.paths import DOCUMENTS

SUPPLIER, BUYER = "C4821093650", "C5510387420"
API = "/api/v1.0"
HOUR = 3600
#: The published example, the smallest valid document. Portal: 10.9
EXAMPLE = (DOCUMENTS / "portal_example.json").read_bytes()


def element(value: Any, **attributes: Any) -> list[dict[str, Any]]:
    return [{"_": value, **attributes}]


def money(value: Any) -> list[dict[str, Any]]:
    return element(value, currencyID="MYR")


def identifications(**schemes: Any) -> list[dict[str, Any]]:
    return [{"ID": element(value, schemeID=scheme)} for scheme, value in schemes.items()]


def document(
    number: str = "INV-2026-000123",
    issued: str = "2026-09-14T03:25:10Z",
    type_code: str = "01",
    original: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Return a valid document. `original` is the (uuid, number) that a note refers to."""
    date, _, time = issued.partition("T")
    root = json.loads(EXAMPLE)
    (invoice,) = root["Invoice"]
    values = {"ID": number, "IssueDate": date, "IssueTime": time, "InvoiceTypeCode": type_code}
    for name, value in values.items():
        invoice[name][0]["_"] = value
    if original:
        reference = {"ID": element(original[1]), "UUID": element(original[0])}
        invoice["BillingReference"] = [{"InvoiceDocumentReference": [reference]}]
    return root


def find(document: dict[str, Any], path: str) -> Any:
    """Return the member at a path below the invoice, `TaxTotal.0.TaxAmount`."""
    node: Any = document["Invoice"][0]
    for name in path.split("."):
        node = node[int(name) if name.isdigit() else name]
    return node


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set the member at a path below the invoice. None removes it."""
    parents, _, name = path.rpartition(".")
    node = find(document, parents) if parents else document["Invoice"][0]
    key = int(name) if name.isdigit() else name
    if value is None:
        del node[key]
    else:
        node[key] = value
    return document


def encode_document(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def entry(root: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the entry of a document in a submission. `changes` replace its members."""
    return {**entry_of(encode_document(root), root["Invoice"][0]["ID"][0]["_"]), **changes}


def entry_of(raw: bytes, number: str, form: str = "JSON") -> dict[str, Any]:
    """Return the entry of a document with exactly these bytes."""
    return {
        "format": form,
        "document": base64.b64encode(raw).decode(),
        "documentHash": hashlib.sha256(raw).hexdigest(),
        "codeNumber": number,
    }


class Portal:
    """A client of the sandbox, logged in as one taxpayer."""

    def __init__(self, http: Any) -> None:
        self.http = http
        self.token: str | None = None

    async def login(
        self,
        taxpayer: str | None = SUPPLIER,
        client_id: str = "sandbox-client",
        secret: str = "sandbox-secret",
    ) -> Self:
        fields = {
            "client_id": client_id,
            "client_secret": secret,
            "grant_type": "client_credentials",
        }
        headers = {"onbehalfof": taxpayer} if taxpayer else {}
        answer = await self.http.post("/connect/token", data=fields, headers=headers)
        self.token = (await answer.json())["access_token"]
        return self

    async def call(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return await self.http.request(
            method, f"{API}{path}", headers=headers, allow_redirects=False, **options
        )

    async def send(self, *entries: dict[str, Any]) -> Any:
        return await self.call("POST", "/documentsubmissions/", json={"documents": entries})

    async def submit(self, *documents: dict[str, Any]) -> Any:
        return await self.send(*map(entry, documents))

    async def accepted(self, document: dict[str, Any]) -> str:
        """Submit a document that must be accepted, and return its uuid."""
        answer = await (await self.submit(document)).json()
        assert answer["rejectedDocuments"] == []
        return answer["acceptedDocuments"][0]["uuid"]

    async def json(self, path: str) -> Any:
        return await (await self.call("GET", path)).json()

    async def details(self, uuid: str) -> Any:
        return await self.json(f"/documents/{uuid}/details")

    async def change(self, uuid: str, status: str, reason: str = "Wrong buyer details") -> Any:
        return await self.call(
            "PUT", f"/documents/state/{uuid}/state", json={"status": status, "reason": reason}
        )

    async def admin(self, path: str, **body: Any) -> Any:
        """Send an administration request: POST with a body, GET without."""
        method = "POST" if body else "GET"
        answer = await self.http.request(method, f"/_sandbox/{path}", json=body or None)
        assert answer.status < 300, await answer.text()
        return await answer.json()

    async def ledger(self) -> list[dict[str, Any]]:
        return (await self.admin("ledger"))["documents"]

    async def now(self, seconds: int = 0) -> str:
        """Return an instant of the sandbox clock."""
        now = datetime.fromisoformat((await self.admin("clock"))["now"].replace("Z", "+00:00"))
        return (now + timedelta(seconds=seconds)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def fresh(self, number: str = "INV-1", age: int = 60, **options: Any) -> dict[str, Any]:
        """Return a valid document that was issued `age` seconds ago."""
        return document(number, await self.now(-age), **options)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=str(tmp_path / "sandbox.sqlite3"), processing_seconds=0, rate_scale=0)


@pytest.fixture
async def portal(settings: Settings, aiohttp_client: ClientFactory) -> Portal:
    return await Portal(await aiohttp_client(create_sandbox(settings))).login()
