"""The audit log: actor, key and request of each change; entries are immutable."""

import json
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.companies import revoke_key
from service.config import Config, read_config
from service.db.pool import connected_pool
from service.db.transactions import Database
from tests.api.test_consolidated_invoices import PLACE as CONSOLIDATED
from tests.api.test_consolidated_invoices import create_consolidated, sale
from tests.api.test_notes import create_note
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_documents
from tests.api_requests import (
    CERTIFICATE,
    PORTAL_CREDENTIALS,
    cancel_latest,
    create_record,
    expect,
    make_account,
    request_json,
    submit,
)
from tests.conftest import Client, Company, StartService, make_company, until
from tests.fixtures_service import RunCommand
from tests.fixtures_webhooks import Receiver, create_endpoint
from tests.harness.certificates import issued
from tests.harness.environments import GENEROUS
from tests.operations.test_commands import read_result


@pytest.fixture
async def api(start: StartService) -> Client:
    return await start(**GENEROUS)


async def get_entries(
    owner: asyncpg.Connection, company: Company, *columns: str
) -> list[tuple[Any, ...]]:
    """Return the audit log of a company as tuples: actor, action and subject, or `columns`."""
    rows = await owner.fetch(
        "select * from audit_log where company_id = $1 order by id", company.id
    )
    return [
        tuple(row[column] for column in columns or ("actor", "action", "subject")) for row in rows
    ]


async def test_change_by_a_key_is_logged_with_its_request_id(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    headers = {"X-Request-Id": "order-7"}
    await expect(api, 200, "PUT", "/api/companies", json={"city": "Ipoh"}, headers=headers)
    await expect(api, 200, "PUT", CERTIFICATE, json=issued().pair, headers=headers)
    await expect(api, 200, "DELETE", CERTIFICATE, headers=headers)
    credentials = {"client_id": "sandbox-client", "client_secret": "sandbox-secret"}
    for method, body in (("PUT", credentials), ("DELETE", None)):
        answer = await request_json(api, method, PORTAL_CREDENTIALS, json=body, headers=headers)
        assert answer[0] == 200
    key = f"key {company.key_id}"
    assert await get_entries(owner, company, "actor", "request_id", "action", "subject") == [
        ("background", None, "create", key),
        (key, "order-7", "change", "company settings"),
        (key, "order-7", "set", "signing certificate"),
        (key, "order-7", "remove", "signing certificate"),
        (key, "order-7", "set", "portal credentials sandbox-client"),
        (key, "order-7", "remove", "portal credentials sandbox-client"),
    ]


async def test_every_kind_of_change_is_logged(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    key = f"key {company.key_id}"
    await owner.execute("truncate audit_log")
    invoice = await create_valid_invoice(api)
    note = await create_note(api, invoice)
    await expect(api, 200, "POST", f"/api/adjustment-notes/{note}/submit-to-portal", json={})
    cancel = f"/api/adjustment-notes/{note}/cancel-latest-adjustment-note-submitted"
    await until(lambda: request_json(api, "POST", cancel, json={}), lambda answer: answer[0] == 200)
    assert (await cancel_latest(api, invoice))[0] == 200
    asked = await create_record(
        api, "/api/einvoice-requests", invoiceCode="1", type="LOCAL_INDIVIDUAL", name="A"
    )
    sold = await sale(api)
    family = await create_consolidated(api, invoiceIds=[sold])
    webhook = (await create_record(api, "/api/webhooks", url="http://127.0.0.1:9/", enabled=False))[
        "id"
    ]
    draft = await create_invoice(api)
    for method, path in (
        ("DELETE", f"/api/invoices/{draft}"),
        ("DELETE", f"/api/adjustment-notes/{note}"),
        ("DELETE", f"/api/einvoice-requests/{asked['id']}"),
        ("DELETE", f"{CONSOLIDATED}/{family}"),
        ("PUT", f"/api/webhooks/{webhook}"),
        ("POST", f"/api/webhooks/{webhook}/rotate-secret"),
        ("DELETE", f"/api/webhooks/{webhook}"),
    ):
        body = {"json": {}} if method != "DELETE" else {}
        await expect(api, 200, method, path, **body)
    assert await get_entries(owner, company) == [
        (key, "create", f"invoice {invoice}"),
        (key, "submit", f"invoice {invoice}"),
        (key, "create", f"adjustment note {note}"),
        (key, "submit", f"adjustment note {note}"),
        (key, "cancel", f"adjustment note {note}"),
        (key, "cancel", f"invoice {invoice}"),
        (key, "create", f"e-invoice request {asked['id']}"),
        (key, "create", f"invoice {sold}"),
        (key, "create", f"consolidated invoice {family}"),
        (key, "create", f"webhook {webhook}"),
        (key, "create", f"invoice {draft}"),
        (key, "delete", f"invoice {draft}"),
        (key, "delete", f"adjustment note {note}"),
        (key, "delete", f"e-invoice request {asked['id']}"),
        (key, "delete", f"consolidated invoice {family}"),
        (key, "change", f"webhook {webhook}"),
        (key, "replace", f"secret of webhook {webhook}"),
        (key, "delete", f"webhook {webhook}"),
    ]


async def test_change_by_background_work_is_logged_as_background(
    api: Client, owner: asyncpg.Connection, company: Company, receiver: Receiver
) -> None:
    receiver.answers = [410]  # the endpoint no longer exists
    webhook_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    logged = await until(
        lambda: get_entries(owner, company), lambda found: found[-1][1] == "change"
    )
    assert logged[-1] == ("background", "change", f"webhook {webhook_id}")


async def test_audit_entries_hold_hashes_before_and_after(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    for city in ("Ipoh", "Klang"):
        await expect(api, 200, "PUT", "/api/companies", json={"city": city})
    first, second = (await get_entries(owner, company, "action", "before_sha256", "after_sha256"))[
        -2:
    ]
    assert first[1] != first[2] == second[1] != second[2]
    assert second[2] == await owner.fetchval(
        "select fingerprint(to_jsonb(c)) from companies c where id = $1", company.id
    )
    invoice_id = await create_valid_invoice(api)
    [document] = await get_documents(api, invoice_id)
    found = await get_entries(owner, company, "after_sha256")
    assert found[-1][0].hex() == document["document_hash"]


async def test_audit_entries_hold_old_and_new_values_and_no_secret(
    api: Client, owner: asyncpg.Connection, company: Company, command: RunCommand
) -> None:
    pair = issued().pair
    webhook = await create_record(api, "/api/webhooks", url="http://127.0.0.1:9/", enabled=False)
    for method, path, body in (
        ("PUT", CERTIFICATE, pair),
        ("DELETE", CERTIFICATE, None),
        ("PUT", f"/api/webhooks/{webhook['id']}", {"include_record": True}),
        ("POST", f"/api/webhooks/{webhook['id']}/rotate-secret", {}),
    ):
        await expect(api, 200, method, path, json=body)
    key = await read_result(command("add-key", "--company", company.id, "--name", "till"))
    person = ("--company", company.id, "--email", "a@example.com", "--name", "A")
    for role in ("owner", "reader"):
        await command("invite-user", *person, "--role", role)
        await command(
            "invite-user",
            "--company",
            company.id,
            "--email",
            "b@example.com",
            "--name",
            "B",
            "--role",
            "owner",
        )
    logged = await get_entries(owner, company, "action", "subject", "changes")
    changes = {(action, subject): json.loads(text) for action, subject, text in logged if text}
    assert changes["create", f"key {key['key_id']}"] == {"name": {"old": None, "new": "till"}}
    record = changes["change", f"webhook {webhook['id']}"]
    assert record == {"include_record": {"old": False, "new": True}}
    assert {"role": {"old": "owner", "new": "reader"}} in changes.values()
    assert changes["remove", "signing certificate"]["subject"]["new"] is None
    kept = json.dumps(list(changes.values()))
    secrets = [webhook["secret"], key["key"], *pair.values()]
    assert not any(secret[20:40] in kept for secret in secrets)


async def test_commands_are_logged_and_shown_by_the_audit_command(
    owner: asyncpg.Connection, company: Company, command: RunCommand, config: Config
) -> None:
    made = await read_result(command("add-key", "--company", company.id))
    assert (await run_command(config, revoke_key, made["key_id"]))["revoked"]
    # Revoking a revoked key changes nothing and adds no entry.
    assert not (await run_command(config, revoke_key, made["key_id"]))["revoked"]
    logged = await get_entries(owner, company)
    assert logged[-2:] == [
        ("command", "create", f"key {made['key_id']}"),
        ("command", "revoke", f"key {made['key_id']}"),
    ]
    read = await command("audit", "--company", company.id, "--last", "1")
    assert read.code == 0
    assert f'"actor":"command","action":"revoke","subject":"key {made["key_id"]}"' in read.out
    assert read.out.count("\n") == 1


async def test_changes_of_account_keys_are_logged(
    owner: asyncpg.Connection, environment: dict[str, str]
) -> None:
    account = await make_account(environment)
    await run_command(read_config(environment), revoke_key, account.key_id)
    rows = await owner.fetch(
        "select account_id, action, subject from audit_log where company_id is null order by id"
    )
    subject = f"key {account.key_id}"
    assert [tuple(row) for row in rows] == [
        (account.id, action, subject) for action in ("create", "revoke")
    ]


async def test_rejected_request_adds_no_audit_entry(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    invoice_id = await create_valid_invoice(api)
    before = await get_entries(owner, company)
    refused = [
        await request_json(api, "PUT", "/api/companies", json={"country": "XXX"}),
        await request_json(api, "DELETE", f"/api/invoices/{invoice_id}"),
        await request_json(api, "DELETE", "/api/invoices/999999"),
        await request_json(api, "DELETE", CERTIFICATE),
        await request_json(api, "PUT", "/api/webhooks/999999", json={}),
        await request_json(
            api, "PUT", "/api/companies", json={"city": "Ipoh"}, headers={"If-Match": '"no"'}
        ),
        await request_json(
            api, "PUT", "/api/companies", json={"city": "Ipoh"}, headers={"X-API-Key": "no"}
        ),
        await submit(api, 999999),
        await cancel_latest(api, 999999),
    ]
    assert {status for status, _ in refused} == {401, 403, 404, 412, 422}
    assert (await submit(api, invoice_id))[0] == 200  # already Valid: nothing is sent
    assert await get_entries(owner, company) == before


@pytest.mark.parametrize("column", ["company_id", "account_id"])
async def test_service_role_cannot_change_audit_entries(
    api: Client, environment: dict[str, str], company: Company, column: str
) -> None:
    other, account = await make_company(environment), await make_account(environment)
    scope, owners = Database.company, (company.id, other.id)
    if column == "account_id":
        scope, owners = Database.account, (account.id, 0)
    forged = f"insert into audit_log ({column}, action, subject{{}}) values ($1, 'x', 'y'{{}})"
    async with connected_pool(environment["DATABASE_URL"], 1) as pool:
        for statement, owner_id in (
            (f"update audit_log set subject = 'x' where {column} = $1", owners[0]),
            (f"delete from audit_log where {column} = $1", owners[0]),
            ("truncate audit_log", None),
            (forged.format("", ""), owners[1]),
            (forged.format(", actor", ", 'me'"), owners[0]),
            (forged.format(", at", ", now()"), owners[0]),
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with scope(Database(pool), owners[0]) as conn:
                    await conn.execute(statement, *([] if owner_id is None else [owner_id]))
        async with scope(Database(pool), owners[0]) as conn:
            seen = await conn.fetch(f"select {column} from audit_log")
    assert {row[0] for row in seen} == {owners[0]}


async def test_change_is_rolled_back_when_its_audit_entry_fails(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    """The change and its audit entry are written in the same transaction."""
    invoice_id, before = await create_invoice(api), await get_entries(owner, company)
    await owner.execute(
        "alter table audit_log add constraint full_up check (action <> 'delete') not valid"
    )
    await expect(api, 500, "DELETE", f"/api/invoices/{invoice_id}")
    await expect(api, 200, "GET", f"/api/invoices/{invoice_id}")
    assert await get_entries(owner, company) == before
