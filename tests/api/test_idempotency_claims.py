"""Lost claims of Idempotency-Keys: one effect, and both requests get the same response."""

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from conftest import Client, Company, Sandbox, StartService, until
from kit import (
    GENEROUS,
    INTEGRATIONS,
    buyer,
    cancel_latest,
    create_delivery,
    create_invoice,
    create_one_of_each,
    create_record,
    create_sale,
    create_valid_invoice,
    fill_path,
    invoice,
    line,
    list_routes,
    note,
    now,
    open_integrations,
    place_of,
    request_json,
    submit,
    wait_for_status,
)
from test_tin_ownership import wait_for_lock

from service.db.statements import sql
from service.http import app_keys
from service.http.idempotency import LEASE

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
#: A trigger: each claim is taken over as soon as it is made, as if its lease had expired.
TAKE_OVER = """
    create function take_over() returns trigger language plpgsql as $$
    begin
      execute format('update %I set claim_token = gen_random_uuid() where key = $1', tg_table_name)
        using new.key;
      return null;
    end $$;
    create trigger taking_over after insert on idempotency_keys
      for each row execute function take_over();
    create trigger taking_over after insert on integration_idempotency_keys
      for each row execute function take_over();
"""
EXPIRE = "update {} set lease_until = clock_timestamp() - interval '1 second'"

KEYS = {"company": "idempotency_keys", "account": "integration_idempotency_keys"}
#: name -> (surface of the key, path, table of the effect, body)
CREATIONS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "an e-invoice request": (
        "company",
        "/api/einvoice-requests",
        "einvoice_requests",
        {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"},
    ),
    "an invoice": ("company", "/api/invoices", "invoices", invoice()),
    "a user": (
        "account",
        f"{INTEGRATIONS}users",
        "integration_users",
        {"name": "Siti", "email": "siti@example.com", "role": "member"},
    ),
}


@pytest.fixture
async def everywhere(start: StartService, company: Company, environment: dict[str, str]) -> Client:
    """Return a client with keys of both surfaces."""
    api = await start(company, **GENEROUS)
    await open_integrations(api, environment)
    return api


async def post_with_key(
    api: Client, path: str, body: Any = None, key: str = "order-7"
) -> tuple[int, Any, bool]:
    """Return (status, body, is replayed) of a POST with an Idempotency-Key."""
    async with api.post(path, json=body or {}, headers={"Idempotency-Key": key}) as response:
        return (
            response.status,
            await response.json(),
            response.headers.get("Idempotent-Replayed") == "true",
        )


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
async def test_request_with_a_lost_claim_creates_nothing(
    everywhere: Client, owner: asyncpg.Connection, name: str
) -> None:
    kind, path, table, body = CREATIONS[name]
    await owner.execute(PAUSE_FIRST.format(table=table))
    await owner.execute("select pg_advisory_lock(4711)")
    first = asyncio.create_task(post_with_key(everywhere, path, body))
    await wait_for_waiting_request(owner)
    await owner.execute(EXPIRE.format(KEYS[kind]))
    second = await post_with_key(everywhere, path, body)
    await owner.execute("select pg_advisory_unlock(4711)")
    late = await first
    assert await owner.fetchval(f"select count(*) from {table}") == 1
    assert (second[0], second[2]) == (201, False) and (late[0], late[2]) == (201, True)
    assert late[1] == second[1]


@pytest.mark.parametrize("prefix, owner_column", [("", "company"), ("integration_", "account")])
async def test_held_claim_is_not_taken_over_before_its_transaction_ends(
    everywhere: Client, owner: asyncpg.Connection, prefix: str, owner_column: str
) -> None:
    """The lease ends while the first request commits its effect."""
    company = owner_column == "company"
    table = KEYS[owner_column]
    kind, path, _, body = CREATIONS["an invoice" if company else "a user"]
    assert kind == owner_column and (await post_with_key(everywhere, path, body))[0] == 201
    await owner.execute(f"update {table} set status = null, answer = null")
    await owner.execute(EXPIRE.format(table))
    row: Any = await owner.fetchrow(f"select * from {table}")
    key = {f"{owner_column}_id": row[0], "route": row["route"], "key": row["key"]}
    database = everywhere.app[app_keys.DATABASE]
    transaction = database.company if company else database.account

    async def take_over() -> Any:
        async with transaction(row[0]) as conn:
            return await getattr(sql, f"{prefix}idempotency_claim")(
                conn, **key, claim_token=uuid4(), body_sha256=row["body_sha256"], lease=LEASE
            )

    async with transaction(row[0]) as conn:
        hold = getattr(sql, f"{prefix}idempotency_hold")
        assert await hold(conn, **key, claim_token=row["claim_token"])
        late = asyncio.create_task(take_over())
        await wait_for_lock(owner, f"insert into {table}")
        assert not late.done()
    assert await late is True


async def test_request_whose_claim_was_taken_over_is_a_409(
    api: Client, owner: asyncpg.Connection
) -> None:
    body = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}
    await owner.execute(TAKE_OVER)
    status, answer, _ = await post_with_key(api, "/api/einvoice-requests", body)
    assert (status, answer) == (
        409,
        {
            "message": "A request with this Idempotency-Key is still running.",
            "code": "idempotency_key_running",
        },
    )
    assert await owner.fetchval("select count(*) from einvoice_requests") == 0


#: POST routes without an effect.
READING = {"/api/consolidated-invoices/plan", "/api/consolidated-invoices/summary"}
#: Tables that a POST can change.
CHANGED = (
    "adjustment_notes",
    "consolidated_invoices",
    "document_links",
    "einvoice_requests",
    "integration_users",
    "invoices",
    "submissions",
    "submitted_documents",
    "webhook_deliveries",
    "webhook_endpoints",
    "webhook_secrets",
)


async def test_no_post_route_has_an_effect_after_a_lost_claim(
    everywhere: Client, start: StartService, company: Company, owner: asyncpg.Connection
) -> None:
    """Every POST route is listed: it stores its response with its effect or holds the claim."""
    posts = await _posts(everywhere)
    await everywhere.close()  # stops background work
    api = await start(company, background=False, **GENEROUS)
    api.session.headers["X-Portal-Key"] = everywhere.session.headers["X-Portal-Key"]
    reading = {
        path
        for _, path in list_routes(api, "POST")
        if path.endswith("/preflight") or "/validation/" in path
    }
    assert posts.keys() | READING | reading == {path for _, path in list_routes(api, "POST")}
    await owner.execute(TAKE_OVER)
    before = await _rows(owner)
    answers = await asyncio.gather(
        *[post_with_key(api, path, body, key=path) for path, body in posts.values()]
    )
    assert {
        path: answer[:2] for path, answer in zip(posts, answers, strict=True) if answer[0] != 409
    } == {}
    assert await _rows(owner) == before


async def _posts(api: Client) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return {route: (path, body)} of a POST with an effect, for every route that has one."""
    ids = await create_one_of_each(api)
    valid, draft = await create_valid_invoice(api), await create_invoice(api)
    path = f"/api/webhooks/{ids['/api/webhooks']}"
    delivery = await create_delivery(api, ids["/api/webhooks"])
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
    small = {"lineItems": lines}
    links = {
        f"{each}/links": (fill_path(f"{each}/links", ids[place_of(each)]), {})
        for each in (one, two, three)
    }
    return {
        **links,
        "/api/invoices": ("/api/invoices", invoice()),
        f"{one}/adjustment-note": (
            f"/api/invoices/{valid}/adjustment-note",
            note(type="DEBIT_NOTE"),
        ),
        f"{one}/submit-to-portal": (f"/api/invoices/{draft}/submit-to-portal", {}),
        f"{one}/cancel-latest-invoice-submitted": (
            f"/api/invoices/{cancellable}/cancel-latest-invoice-submitted",
            {},
        ),
        f"{two}/submit-to-portal": (
            fill_path(f"{two}/submit-to-portal", ids["/api/adjustment-notes"]),
            {},
        ),
        f"{two}/cancel-latest-adjustment-note-submitted": (
            fill_path(f"{two}/cancel-latest-adjustment-note-submitted", credit["id"]),
            {},
        ),
        "/api/consolidated-invoices": (
            "/api/consolidated-invoices",
            {**family, "code": 902, "invoiceIds": [await create_sale(api)]},
        ),
        f"{three}/submit-to-portal": (
            fill_path(f"{three}/submit-to-portal", ids["/api/consolidated-invoices"]),
            {},
        ),
        f"{three}/cancel-latest-invoice-submitted": (
            fill_path(f"{three}/cancel-latest-invoice-submitted", sent["id"]),
            {},
        ),
        f"{three}/adjustment-note": (
            fill_path(f"{three}/adjustment-note", sent["id"]),
            note(targetInvoiceType="CONSOLIDATED_INVOICE", type="DEBIT_NOTE", **small),
        ),
        "/api/einvoice-requests": (
            "/api/einvoice-requests",
            {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": buyer()["name"]},
        ),
        "/api/webhooks": ("/api/webhooks", {"url": "http://127.0.0.1:9/"}),
        "/api/webhooks/{id}/rotate-secret": (f"{path}/rotate-secret", {}),
        "/api/webhooks/{id}/deliveries/{delivery_id}/redeliver": (
            f"{path}/deliveries/{delivery}/redeliver",
            {},
        ),
        f"{INTEGRATIONS}users": (f"{INTEGRATIONS}users", person),
    }


async def _rows(owner: asyncpg.Connection) -> dict[str, list[str]]:
    query = "select to_jsonb(t)::text from {} t order by 1"
    return {table: [row[0] for row in await owner.fetch(query.format(table))] for table in CHANGED}


async def test_concurrent_submits_with_one_key_send_once(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """The second request takes the key over and waits for the submission of the first one."""
    invoice_id = await create_invoice(api)
    await sandbox.fault("submit", "slow", seconds=1)
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    first = asyncio.create_task(post_with_key(api, path))
    await until(sandbox.ledger, len)
    await owner.execute(EXPIRE.format("idempotency_keys"))
    second = await post_with_key(api, path)
    assert second == (200, second[1], False) and (await first)[:2] == second[:2]
    assert len(await sandbox.ledger()) == 1
    assert await post_with_key(api, path) == (*second[:2], True)


async def test_submit_with_a_lost_claim_does_not_resend_a_cancelled_document(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    assert (await cancel_latest(api, invoice_id))[0] == 200
    await owner.execute(TAKE_OVER)
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    assert (await post_with_key(api, path, {"resubmit": True}))[0] == 409
    assert len(await sandbox.ledger()) == 1
    await wait_for_status(api, invoice_id, "Cancelled")
