"""Requests that many tests send, and what they need."""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import asyncpg
from yarl import URL

from service.commands.integrations import add_integration_key, add_organization
from service.commands.serve import DEMO_COMPANY
from service.config import read_config
from service.db.pool import connected_pool
from service.db.transactions import Database
from tests.conftest import AnyClient, Client
from tests.harness.databases import open_connection
from tests.harness.sandbox import Administration

#: The status and the JSON of a response.
Answer = tuple[int, Any]


async def request_json(api: AnyClient, method: str, path: str | URL, **request: Any) -> Answer:
    """Send a request and return its status and JSON."""
    async with api.request(method, path, **request) as response:
        return response.status, await response.json()


async def expect(api: AnyClient, status: int, method: str, path: str | URL, **request: Any) -> Any:
    """Send a request, check the status of its response, and return its JSON."""
    given, body = await request_json(api, method, path, **request)
    assert given == status, body
    return body


async def post_once(
    api: AnyClient, key: str, path: str = "/api/invoices", **body: Any
) -> tuple[int, Any, bool]:
    """Send a POST with an Idempotency-Key. Return its status, its JSON, and if it is a replay."""
    async with api.post(path, json=body, headers={"Idempotency-Key": key}) as response:
        is_replayed = response.headers.get("Idempotent-Replayed") == "true"
        return response.status, await response.json(), is_replayed


def list_rules(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the path and the rule of each violation in an answer."""
    return [(each["path"], each["rule"]) for each in answer["errors"]]


def list_paths(answer: Mapping[str, Any]) -> list[str]:
    """Return the path of each error in an answer."""
    return [each["path"] for each in answer["errors"]]


def list_routes(api: Client, *methods: str) -> list[tuple[str, str]]:
    """Return (method, path with {parts}) of the routes under /api, of all methods or the given."""
    app = api.app
    assert app is not None
    known = (
        (route.method, route.resource.canonical) for route in app.router.routes() if route.resource
    )
    return [
        (method, path)
        for method, path in known
        if path.startswith("/api/") and (not methods or method in methods)
    ]


async def add_own_client(sandbox: Administration, **changes: Any) -> None:
    """Add OWN_CLIENT, a client of the demo company's taxpayer, to the sandbox."""
    tin = DEMO_COMPANY["tin_code"]
    body = {**OWN_CLIENT, "tin": tin, "intermediary": False, "blocked": False}
    await sandbox.send("POST", "clients", {**body, **changes})


def not_found(noun: str) -> Answer:
    """Return the answer to a request for a record that does not exist."""
    return 404, {"message": f"{noun} not found", "code": "not_found"}


async def submit(
    api: AnyClient, record_id: int, place: str = "/api/invoices", **body: Any
) -> Answer:
    """Submit a record and return the status and the JSON of the response."""
    return await request_json(api, "POST", f"{place}/{record_id}/submit-to-portal", json=body)


async def cancel_latest(
    api: AnyClient, record_id: int, place: str = "/api/invoices", **body: Any
) -> Answer:
    """Cancel a record's document and return the status and the JSON of the response."""
    noun = "adjustment-note" if place == "/api/adjustment-notes" else "invoice"
    path = f"{place}/{record_id}/cancel-latest-{noun}-submitted"
    return await request_json(api, "POST", path, json=body)


INTEGRATIONS = "/api/integrations/"
#: The description of the API, which needs no key.
KEYLESS = {"/api/openapi.json", "/api/docs", "/api/docs/docs.js", "/api/docs/docs.css"}
#: The company's own client at the portal, a record without an id.
PORTAL_CREDENTIALS = "/api/companies/portal-credentials"
OWN_CLIENT = {"client_id": "own-client", "client_secret": "own-secret-4711"}
#: The signing certificate of a company, a record without an id.
CERTIFICATE = "/api/companies/signing-certificate"
#: The paths of resources, and their names in a 404.
PLACES = {
    "/api/invoices": "Invoice",
    "/api/adjustment-notes": "Adjustment note",
    "/api/consolidated-invoices": "Consolidated invoice",
    "/api/einvoice-requests": "E-invoice request",
    "/api/webhooks": "Webhook",
}


@dataclass(frozen=True, slots=True)
class Account:
    """An account of the integrations API and its key."""

    id: int
    key: str
    key_id: str


async def make_account(
    environment: Mapping[str, str], name: str = "Penang Trading Group"
) -> Account:
    """Create a key of an account, and the account if there is none of this name."""
    return (await make_accounts(environment, [name]))[0]


async def make_accounts(environment: Mapping[str, str], names: Iterable[str]) -> list[Account]:
    """Create a key of each account, and the accounts of which there is none of this name."""
    config = read_config(environment)
    async with connected_pool(config.database_url, 1) as pool:
        made = [await add_integration_key(config, Database(pool), name) for name in names]
    return [Account(key["account_id"], key["key"], key["key_id"]) for key in made]


async def open_integrations(
    api: Client, environment: Mapping[str, str], name: str = "Penang Trading Group"
) -> int:
    """Give a client a new integration key of an account, and return the account's id."""
    account = await make_account(environment, name)
    api.session.headers["X-Portal-Key"] = account.key
    return account.id


def fill_path(path: str, record_id: object = 1, part: object = 1) -> str:
    """Return a route's path with `record_id` for {id}, and `part` for every other {part}."""
    return re.sub(r"\{\w+\}", str(part), path.replace("{id}", str(record_id)))


def place_of(path: str) -> str:
    """Return the path of a route's resource, up to its first {part}."""
    return path.partition("/{")[0]


def normalise_error(path: str, status: int, body: dict[str, Any]) -> Answer:
    """Check the shape of an error on its surface, and return it as other routes write it."""
    if path.startswith(INTEGRATIONS):
        assert list(body) == ["error", "message", "code", "details"], body
        assert body["error"] == HTTPStatus(status).phrase
        assert not (status == 422 or {"message", "code"} & body["details"].keys())
        broken = status == 400 and "errors" in body["details"]
        known = {"message": body["message"], "code": body["code"]}
        return 422 if broken else status, {**known, **body["details"]}
    if path.startswith("/api/validation/"):
        assert next(iter(body)) == "success" and body["success"] is False, body
        return status, {name: member for name, member in body.items() if name != "success"}
    return status, body


async def create_record(api: AnyClient, path: str, **body: Any) -> Any:
    """Create a record and return the `data` of the response."""
    return (await expect(api, 201, "POST", path, json=body))["data"]


async def insert_rows_of_comparisons(owner: asyncpg.Connection) -> None:
    """Insert rows of comparisons and holds for the first submission."""
    for insert in (
        "into comparisons (company_id, compared_at) select company_id, now()",
        "into sending_holds (company_id, reason, released_at)"
        " select company_id, 'A restore.', now()",
        "into findings (company_id, kind, tin, number, uuid, resolved_at, resolved_by)"
        " select company_id, 'orphan', tin, 'X', 'X', now(), 'comparison'",
        "into portal_odd_rows (company_id, row_key, operation, tin, problems, shown)"
        " select company_id, 'X', 'search', tin, 'X', 'X'",
    ):
        await owner.execute(f"insert {insert} from submissions order by id limit 1")


async def create_organization(
    environment: Mapping[str, str], account: int, *companies: int, name: str = "Penang Branch"
) -> str:
    """Create an organization of an account, as a command does, and return its id."""
    config = read_config(environment)
    async with (
        open_connection(config.database_url) as conn,
        connected_pool(config.database_url, 1) as pool,
    ):
        owner = await conn.fetchval("select name from accounts where id = $1", account)
        return (await add_organization(config, Database(pool), owner, name, companies))["id"]


async def create_integration_records(
    api: AnyClient, environment: Mapping[str, str], account: int, *companies: int
) -> dict[str, str]:
    """Create a user and an organization with this user, and return {place: id}."""
    person = {
        "name": "Nurul Huda",
        "email": f"{secrets.token_hex(6)}@example.com",
        "role": "member",
    }
    user = await expect(api, 201, "POST", f"{INTEGRATIONS}users", json=person)
    organization = await create_organization(environment, account, *companies)
    body = {"members": [{"userId": user["id"]}]}
    path = f"{INTEGRATIONS}organizations/{organization}"
    await expect(api, 200, "PUT", path, json=body)
    return {f"{INTEGRATIONS}users": user["id"], f"{INTEGRATIONS}organizations": organization}
