"""Several requests with one Idempotency-Key: one effect, and all get the same response."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.api_invoices import (
    create_delivery,
    create_invoice,
    create_one_of_each,
    create_sale,
    create_valid_invoice,
)
from tests.api_reads import wait_for_status
from tests.api_requests import (
    INTEGRATIONS,
    cancel_latest,
    create_record,
    fill_path,
    list_routes,
    place_of,
    post_once,
    request_json,
    submit,
)
from tests.conftest import Client, Sandbox, StartService, until
from tests.harness.bodies import buyer, invoice, line, note, now
from tests.harness.environments import GENEROUS

#: A trigger: the first insert into a table waits for the advisory lock 4711.
PAUSE_FIRST = """
    create sequence passes;
    grant usage on sequence passes to einvoice_service;
    create function pause_first() returns trigger language plpgsql as $$
    begin
      if nextval('passes') = 1 then
        perform set_config('lock_timeout', '60s', true);  -- the statement's own limit remains
        perform pg_advisory_xact_lock(4711);
      end if;
      return new;
    end $$;
    create trigger pausing before insert on {table} for each row execute function pause_first();
"""
#: A trigger: no key can be stored, as if another request had stored it.
TAKE = """
    create function take() returns trigger language plpgsql as $$ begin return null; end $$;
    create trigger taking before insert on idempotency_keys
      for each row execute function take();
"""
IS_WAITED_FOR = """
    select exists (select from pg_locks
                    where transactionid = pg_current_xact_id()::xid and not granted)
"""
EXPIRE = "update idempotency_keys set created_at = clock_timestamp() - interval '91 seconds'"

#: name -> (path, table of the effect, body)
CREATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "an e-invoice request": (
        "/api/einvoice-requests",
        "einvoice_requests",
        {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"},
    ),
    "an invoice": ("/api/invoices", "documents", invoice()),
    "a user": (
        f"{INTEGRATIONS}users",
        "integration_users",
        {"name": "Siti", "email": "siti@example.com", "role": "member"},
    ),
}


async def wait_for_waiting_request(owner: asyncpg.Connection) -> None:
    """Wait until a request waits for the advisory lock."""
    query = """
        select count(*)
          from pg_locks
         where locktype = 'advisory' and objid = 4711 and not granted
           and database = (select oid from pg_database where datname = current_database())
    """
    await until(lambda: owner.fetchval(query))


@pytest.mark.parametrize("name", CREATIONS)
async def test_a_request_that_was_overtaken_creates_nothing(
    everywhere: Client, owner: asyncpg.Connection, name: str
) -> None:
    path, table, body = CREATIONS[name]
    await owner.execute(PAUSE_FIRST.format(table=table))
    await owner.execute("select pg_advisory_lock(4711)")
    first = asyncio.create_task(post_once(everywhere, "a", path, **body))
    await wait_for_waiting_request(owner)
    second = await post_once(everywhere, "a", path, **body)
    await owner.execute("select pg_advisory_unlock(4711)")
    late = await first
    assert await owner.fetchval(f"select count(*) from {table}") == 1
    assert (second[0], second[2]) == (201, False) and (late[0], late[2]) == (201, True)
    assert late[1] == second[1]


@pytest.mark.parametrize("name", ["an e-invoice request", "a user"])
async def test_a_request_waits_for_the_transaction_that_stores_its_key(
    everywhere: Client, owner: asyncpg.Connection, name: str
) -> None:
    """It is rolled back, and gets the response of that transaction."""
    path, table, body = CREATIONS[name]
    assert (await post_once(everywhere, "a", path, **body))[0] == 201
    columns = "owner_kind, owner_id, route, key, body_sha256, status, claim_token"
    await owner.execute(
        f"create table kept as select {columns}, '{{}}' as answer from idempotency_keys;"
        f" delete from {table}; delete from idempotency_keys"
    )
    async with owner.transaction():
        await owner.execute(f"insert into idempotency_keys ({columns}, answer) table kept")
        late = asyncio.create_task(post_once(everywhere, "a", path, **body))
        await until(lambda: owner.fetchval(IS_WAITED_FOR))
    assert await late == (201, {}, True)
    assert await owner.fetchval(f"select count(*) from {table}") == 0


async def test_a_request_whose_key_cannot_be_stored_is_a_409(
    api: Client, owner: asyncpg.Connection
) -> None:
    body = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}
    await owner.execute(TAKE)
    status, answer, _ = await post_once(api, "a", "/api/einvoice-requests", **body)
    assert status == 409
    assert answer == {
        "message": "A request with this Idempotency-Key is still running.",
        "code": "idempotency_key_running",
    }
    assert await owner.fetchval("select count(*) from einvoice_requests") == 0


#: POST routes without an effect.
READING = {"/api/consolidated-invoices/plan", "/api/consolidated-invoices/summary"}
#: Tables that a POST can change.
CHANGED = (
    "document_links documents einvoice_requests integration_users submissions "
    "submitted_documents webhook_deliveries webhook_endpoints webhook_secrets"
)


async def test_no_post_route_has_an_effect_without_its_key(
    everywhere: Client, start: StartService, owner: asyncpg.Connection
) -> None:
    """Every POST route is listed: it stores its key with its effect or intent."""
    posts = await _posts(everywhere)
    await everywhere.close()  # stops background work
    api = await start(background=False, **GENEROUS)
    api.session.headers["X-Portal-Key"] = everywhere.session.headers["X-Portal-Key"]
    reading = {
        path
        for _, path in list_routes(api, "POST")
        if path.endswith("/preflight") or "/validation/" in path
    }
    assert posts.keys() | READING | reading == {path for _, path in list_routes(api, "POST")}
    await owner.execute(TAKE)
    before = await _rows(owner)
    answers = await asyncio.gather(
        *[post_once(api, path, path, **body) for path, body in posts.values()]
    )
    assert {
        path: answer[:2] for path, answer in zip(posts, answers, strict=True) if answer[0] != 409
    } == {}
    assert await _rows(owner) == before


async def _posts(api: Client) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return {route: (path, body)} of a POST with an effect, for every route that has one."""
    ids = await create_one_of_each(api)
    valid, draft = await create_valid_invoice(api), await create_invoice(api)
    webhook = ids["/api/webhooks"]
    delivery = await create_delivery(api, webhook)
    lines = [
        line(classifications=["004"], taxDetails=[{"taxType": "06", "taxRate": {"percentage": 0}}])
    ]
    family = {"type": "CONSOLIDATED_INVOICE", "issueDateTime": now()}
    sent = await create_record(
        api, "/api/consolidated-invoices", **family, code=901, invoiceIds=[await create_sale(api)]
    )
    assert (await submit(api, sent["id"], "/api/consolidated-invoices"))[0] == 200
    credit = await create_record(api, f"/api/invoices/{valid}/adjustment-note", **note())
    assert (await submit(api, credit["id"], "/api/adjustment-notes"))[0] == 200
    cancellable = await create_valid_invoice(api)
    for place, invoice_id in (
        ("/api/consolidated-invoices", sent["id"]),
        ("/api/adjustment-notes", credit["id"]),
    ):
        await until(
            lambda: request_json(api, "GET", f"{place}/{invoice_id}"),
            lambda answer: answer[1]["status"] == "Valid",
        )
    one, two, three = (
        "/api/invoices/{id}",
        "/api/adjustment-notes/{id}",
        "/api/consolidated-invoices/{id}",
    )
    person = {"name": "Siti", "email": "siti@example.com", "role": "member"}
    target = {"targetInvoiceType": "CONSOLIDATED_INVOICE", "type": "DEBIT_NOTE"}
    rows = (
        *((f"{each}/links", ids[place_of(each)], {}) for each in (one, two, three)),
        ("/api/invoices", 0, invoice()),
        (f"{one}/adjustment-note", valid, note(type="DEBIT_NOTE")),
        (f"{one}/submit-to-portal", draft, {}),
        (f"{one}/cancel-latest-invoice-submitted", cancellable, {}),
        (f"{two}/submit-to-portal", ids["/api/adjustment-notes"], {}),
        (f"{two}/cancel-latest-adjustment-note-submitted", credit["id"], {}),
        (
            "/api/consolidated-invoices",
            0,
            {**family, "code": 902, "invoiceIds": [await create_sale(api)]},
        ),
        (f"{three}/submit-to-portal", ids["/api/consolidated-invoices"], {}),
        (f"{three}/cancel-latest-invoice-submitted", sent["id"], {}),
        (f"{three}/adjustment-note", sent["id"], note(**target, lineItems=lines)),
        (
            "/api/einvoice-requests",
            0,
            {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": buyer()["name"]},
        ),
        ("/api/webhooks", 0, {"url": "http://127.0.0.1:9/"}),
        ("/api/webhooks/{id}/rotate-secret", webhook, {}),
        ("/api/webhooks/{id}/deliveries/{delivery_id}/redeliver", webhook, {}),
        (f"{INTEGRATIONS}users", 0, person),
    )
    return {route: (fill_path(route, record_id, delivery), body) for route, record_id, body in rows}


async def _rows(owner: asyncpg.Connection) -> dict[str, list[str]]:
    query = "select to_jsonb(t)::text from {} t order by 1"
    return {
        table: [row[0] for row in await owner.fetch(query.format(table))]
        for table in CHANGED.split()
    }


async def test_concurrent_submits_with_one_key_send_once(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """Both wait for one submission. The first to store its response keeps the key."""
    invoice_id = await create_invoice(api)
    await sandbox.fault("submit", "slow", seconds=4)
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    first = asyncio.create_task(post_once(api, "a", path))
    await until(sandbox.ledger, len)
    await owner.execute(EXPIRE)
    second = await post_once(api, "a", path)
    assert second[0] == 200 and (await first)[:2] == second[:2]
    assert len(await sandbox.ledger()) == 1
    assert await post_once(api, "a", path) == (*second[:2], True)


async def test_concurrent_creations_that_submit_get_the_final_response(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "slow", seconds=1)
    body = invoice(submitImmediately=True)
    answers = await asyncio.gather(*[post_once(api, "a", **body) for _ in range(3)])
    assert [answer[:2] for answer in answers] == [answers[0][:2]] * 3
    assert answers[0][1]["data"]["status"] == "Submitted"
    assert sorted(is_replayed for _, _, is_replayed in answers) == [False, True, True]
    assert len(await sandbox.ledger()) == 1


async def test_a_submit_without_its_key_does_not_resend_a_cancelled_document(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    assert (await cancel_latest(api, invoice_id))[0] == 200
    await owner.execute(TAKE)
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    assert (await post_once(api, "a", path, resubmit=True))[0] == 409
    assert len(await sandbox.ledger()) == 1
    await wait_for_status(api, invoice_id, "Cancelled")
