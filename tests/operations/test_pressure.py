"""PostgreSQL busy, full or unreachable: a 503 within seconds, and recovery without a restart."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from service import json_codec
from service.config import read_config
from service.db.compatibility import newest_number, read_migrations
from service.db.migrations import migrate
from service.db.pool import MOST_WAITING, connected_pool
from service.db.retry import TRIES, retry
from service.db.transactions import Database
from service.errors import TooManyRequests, Unavailable
from service.http import app_keys
from service.http.limits import (
    MAX_BUCKETS,
    MAX_EXPORTS,
    MAX_PUBLIC_UPLOAD_BYTES,
    MAX_UPLOAD_BYTES,
    UNCOUNTED_BYTES,
    ConcurrencyLimiter,
    RateLimiter,
)
from tests.api.test_exports import insert_copies
from tests.api_invoices import create_invoice, create_submitted_invoice
from tests.api_reads import (
    count_waiting,
    get_documents,
    get_invoice,
    wait_for_status,
    wait_until_status,
)
from tests.api_requests import expect, request_json, submit
from tests.conftest import Client, Company, Sandbox, StartService, make_company, patience, until
from tests.harness.bodies import invoice, line
from tests.harness.databases import add_migration
from tests.harness.network import Network
from tests.harness.waiting import wait_until
from tests.operations.test_upload_budget import taken

#: Makes the first writes to a table fail with an SQLSTATE.
FAILING = """
    create sequence if not exists failures;
    grant usage on sequence failures to einvoice_service, einvoice_across;
    create or replace function fail() returns trigger language plpgsql as $$
    begin
      if nextval('failures') <= {times} then
        raise exception 'injected failure' using errcode = '{state}';
      end if;
      return coalesce(new, old);
    end $$;
    create trigger failing before insert or update or delete on {table}
       for each row execute function fail();
"""


async def fails(owner: asyncpg.Connection, table: str, state: str, times: int = 10**9) -> None:
    await owner.execute(FAILING.format(table=table, state=state, times=times))


async def works_again(owner: asyncpg.Connection, table: str) -> None:
    await owner.execute(f"drop trigger failing on {table}")


@pytest.fixture
async def network(database: str) -> AsyncIterator[Network]:
    """A network between the service and its database that can be cut."""
    between = Network(database)
    await between.heal()
    yield between
    await between.refuse()


@pytest.fixture
async def far_api(network: Network, start: StartService) -> Client:
    """A service that reaches its database over the network, with timeouts of seconds."""
    return await start(
        DATABASE_URL=network.url, DATABASE_ACQUIRE_SECONDS="5", DATABASE_ANSWER_SECONDS="2"
    )


def is_unavailable(response: aiohttp.ClientResponse) -> bool:
    """Return whether a response is a 503 with Retry-After."""
    return response.status == 503 and int(response.headers["Retry-After"]) >= 1


async def test_requests_without_a_free_connection_are_a_503(
    start: StartService, owner: asyncpg.Connection
) -> None:
    api = await start(POOL_SIZE="2", DATABASE_ACQUIRE_SECONDS="2")
    invoice_id = await create_invoice(api)
    async with owner.transaction():
        await owner.execute("lock table documents in access exclusive mode")
        answers = await asyncio.gather(*[api.get(f"/api/invoices/{invoice_id}") for _ in range(6)])
        assert all(map(is_unavailable, answers))
    assert (await until(lambda: submit(api, invoice_id), lambda answer: answer[0] != 503))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")


async def test_exhausted_request_connections_do_not_block_the_worker(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    environment: dict[str, str],
) -> None:
    api, stop = await start(POOL_SIZE="2", DATABASE_ACQUIRE_SECONDS="2"), asyncio.Event()
    await sandbox.settings(processing_seconds=3600)
    invoice_id = await create_submitted_invoice(api)
    # No company gets both connections.
    keys = [company.key, (await make_company(environment)).key] * 4

    async def hold(key: str) -> None:
        path, headers = "/api/einvoice-requests", {"X-API-Key": key}
        while not stop.is_set():
            await expect(api, 503, "GET", path, headers=headers)

    async with owner.transaction():
        await owner.execute("lock table einvoice_requests in access exclusive mode")
        holding = [asyncio.create_task(hold(key)) for key in keys]
        await until(lambda: count_waiting(owner), lambda waiting: waiting == 2)
        await expect(api, 200, "GET", "/readyz")
        await sandbox.settings(processing_seconds=0)
        await until(
            lambda: owner.fetchval("select status from document_states where id = $1", invoice_id),
            lambda status: status == "Valid",
        )
        assert await count_waiting(owner)
        stop.set()
    await asyncio.gather(*holding, return_exceptions=True)


async def test_the_queue_for_a_connection_is_limited(database: str) -> None:
    async with connected_pool(database, 1) as pool:
        patient = read_config({"DATABASE_ACQUIRE_SECONDS": "60"})  # longer than the test
        shared = Database(pool, patient)

        async def use() -> bool:
            async with shared.across():
                return True

        async with shared.across():
            waiting = {asyncio.create_task(use()) for _ in range(MOST_WAITING + 1)}
            done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            (refused,) = done
            assert isinstance(refused.exception(), Unavailable)
        assert all(await asyncio.gather(*others))


async def test_statements_locks_and_idle_transactions_have_time_limits(database: str) -> None:
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    async with connected_pool(database, 1) as pool, Database(pool).across() as conn:
        found = [await conn.fetchval("select current_setting($1)", limit) for limit in limits]
    assert found == ["5s", "3s", "10s"]


async def test_the_service_recovers_after_all_connections_were_terminated(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    await owner.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where pid <> pg_backend_pid() and datname = current_database()"
    )
    await until(lambda: request_json(api, "get", "/readyz"), lambda answer: answer[0] == 200)
    assert (await until(lambda: submit(api, invoice_id), lambda answer: answer[0] != 503))[0] == 200
    await wait_until_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


@pytest.mark.parametrize("way", ["refuse", "reset"])
async def test_refused_or_reset_connections_are_a_503_until_recovery(
    far_api: Client, network: Network, way: str
) -> None:
    invoice_id = await create_invoice(far_api)
    await getattr(network, way)()
    answers = await asyncio.gather(
        *[far_api.get(f"/api/invoices/{invoice_id}") for _ in range(20)],
        far_api.post("/api/invoices", json=invoice()),
    )
    assert all(map(is_unavailable, answers))
    await network.heal()
    assert (await submit(far_api, invoice_id))[0] == 200
    await wait_for_status(far_api, invoice_id, "Valid")


async def test_a_submit_whose_commit_is_not_confirmed_goes_on(
    far_api: Client, network: Network, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(far_api)
    network.lose_commit()
    assert (await submit(far_api, invoice_id))[0] == 200
    await wait_for_status(far_api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_requests_wait_for_the_end_of_a_failover(
    network: Network, start: StartService
) -> None:
    variables = {"DATABASE_URL": network.url, "DATABASE_FAILOVER_SECONDS": "30"}
    api = await start(background=False, **variables)
    invoice_id = await create_invoice(api)
    await network.refuse()
    requests = [
        asyncio.ensure_future(api.get(f"/api/invoices/{invoice_id}")),
        asyncio.ensure_future(api.post("/api/invoices", json=invoice())),
    ]
    done, _ = await asyncio.wait(requests, timeout=1)
    assert not done
    await network.heal()
    async with patience():
        assert [answer.status for answer in await asyncio.gather(*requests)] == [200, 201]


async def test_a_transaction_that_a_shutdown_aborts_is_retried(
    api: Client, owner: asyncpg.Connection
) -> None:
    """The update waits for a lock when its session is terminated."""
    invoice_id = await create_invoice(api)
    async with owner.transaction():
        await owner.execute("select from documents for update")
        body = invoice()
        update = asyncio.ensure_future(api.put(f"/api/invoices/{invoice_id}", json=body))
        blocked = "select pid from pg_stat_activity where wait_event_type = 'Lock'"
        pid = await until(lambda: owner.fetchval(blocked))
        await owner.execute("select pg_terminate_backend($1)", pid)
        await until(lambda: owner.fetchval(blocked), lambda other: other not in (None, pid))
    async with patience():
        assert (await update).status == 200


@pytest.mark.long
async def test_a_silent_network_is_a_503_within_seconds_until_recovery(
    far_api: Client, network: Network
) -> None:
    invoice_id = await create_invoice(far_api)
    network.swallow()
    async with patience():
        answers = await asyncio.gather(
            *[far_api.get(f"/api/invoices/{invoice_id}") for _ in range(20)],
            far_api.post("/api/invoices", json=invoice()),
        )
    assert all(map(is_unavailable, answers))
    await expect(far_api, 503, "GET", "/readyz")
    await network.heal()
    for path in (f"/api/invoices/{invoice_id}", "/readyz"):
        await until(lambda path=path: _statuses(far_api, path), lambda statuses: statuses == {200})


async def _statuses(api: Client, path: str) -> set[int]:
    """Return the statuses of 8 concurrent requests."""
    return {
        response.status for response in await asyncio.gather(*[api.get(path) for _ in range(8)])
    }


@pytest.mark.long
async def test_silently_dead_connections_fail_no_request(
    network: Network, start: StartService
) -> None:
    # The timeout applies to new connections too.
    bounds = {"POOL_SIZE": "4", "DATABASE_ANSWER_SECONDS": "20"}
    api = await start(DATABASE_URL=network.url, **bounds)
    invoice_id = await create_invoice(api)
    await asyncio.gather(*[get_invoice(api, invoice_id) for _ in range(8)])
    network.forget()
    assert await _statuses(api, f"/api/invoices/{invoice_id}") == {200}
    await network.refuse()


async def test_a_runaway_statement_is_cancelled_and_rolled_back(
    api: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute(
        """
        create function dawdle() returns trigger language plpgsql as $$
        begin
          perform pg_sleep(60);
          return new;
        end $$;
        create trigger dawdling before insert on documents for each row execute function dawdle();
        """
    )
    async with patience(30):
        assert is_unavailable(await api.post("/api/invoices", json=invoice(code=77)))
    await owner.execute("drop trigger dawdling on documents")
    assert await create_invoice(api, code=77)


@pytest.mark.parametrize("state", ["40P01", "40001"])
async def test_a_transaction_after_a_deadlock_is_retried(
    api: Client, owner: asyncpg.Connection, state: str
) -> None:
    await fails(owner, "documents", state, times=2)
    invoice_id = await create_invoice(api)
    assert await owner.fetchval("select array_agg(id) from documents") == [invoice_id]


async def test_the_outcome_of_a_submission_is_stored_after_a_deadlock(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    await fails(owner, "submissions", "40P01", times=2)
    await works_again(owner, "submissions")
    accepted = "before update on submissions for each row when (new.state = 'Accepted')"
    await owner.execute(f"create trigger failing {accepted} execute function fail()")
    assert (await submit(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_a_transaction_that_fails_three_times_is_a_503(
    api: Client, owner: asyncpg.Connection
) -> None:
    await fails(owner, "documents", "40P01", times=3)
    assert is_unavailable(await api.post("/api/invoices", json=invoice(code=8)))
    assert await create_invoice(api, code=8)


async def test_committed_work_is_not_repeated_after_a_deadlock(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """A failure after the invoice was stored does not repeat the creation."""
    await fails(owner, "portal_sightings", "40P01")
    async with api.post("/api/invoices", json=invoice(submitImmediately=True)) as response:
        assert response.status in (201, 503)
    assert await owner.fetchval("select count(*) from documents") == 1
    assert len(await sandbox.ledger()) == 1


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
async def test_aborted_work_is_repeated_unless_it_has_committed(
    database: str, commits: bool, depth: int
) -> None:
    """With `depth` 2 the transactions are those of work within the work."""
    runs: list[int] = []
    async with connected_pool(database, 1) as pool:

        async def commit(number: int) -> None:
            async with Database(pool).company(number):
                pass

        async def work(number: int) -> None:
            runs.append(number)
            if commits:
                await (commit(number) if depth == 1 else retry(commit, number))
            async with Database(pool).company(number) as conn:
                await conn.execute("do $$ begin raise sqlstate '40P01'; end $$")

        with pytest.raises(asyncpg.DeadlockDetectedError):
            await retry(work, 1)
    assert len(runs) == (1 if commits else TRIES)


@pytest.mark.parametrize("state", ["53100", "53200", "58030"])
async def test_a_full_disk_refuses_writes_and_serves_reads(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox, state: str
) -> None:
    invoice_id = await create_invoice(api)
    for table in ("documents", "submissions"):
        await fails(owner, table, state)
    assert is_unavailable(await api.post("/api/invoices", json=invoice()))
    assert is_unavailable(await api.post(f"/api/invoices/{invoice_id}/submit-to-portal", json={}))
    assert (await get_invoice(api, invoice_id))["status"] == "Draft"
    assert not await sandbox.ledger() and not await get_documents(api, invoice_id)
    for table in ("documents", "submissions"):
        await works_again(owner, table)
    assert (await submit(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")


async def test_a_failed_request_does_not_keep_its_idempotency_key(
    api: Client, owner: asyncpg.Connection
) -> None:
    await fails(owner, "documents", "53100")
    body, headers = invoice(), {"Idempotency-Key": "order-7"}
    await expect(api, 503, "POST", "/api/invoices", json=body, headers=headers)
    await works_again(owner, "documents")
    await expect(api, 201, "POST", "/api/invoices", json=body, headers=headers)


async def test_a_response_is_sent_even_if_it_cannot_be_stored(
    api: Client, owner: asyncpg.Connection
) -> None:
    await fails(owner, "idempotency_keys", "53100")
    await works_again(owner, "idempotency_keys")
    await owner.execute(
        "create trigger failing before update on idempotency_keys"
        " for each row execute function fail()"
    )
    invoice_id = await create_invoice(api)
    headers = {"Idempotency-Key": "send-1"}
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    status, body = await request_json(api, "post", path, json={}, headers=headers)
    assert status == 200
    await works_again(owner, "idempotency_keys")
    repeat = partial(
        request_json,
        api,
        "post",
        f"/api/invoices/{invoice_id}/submit-to-portal",
        json={},
        headers=headers,
    )
    assert await until(repeat, lambda answer: answer[0] != 409) == (status, body)


async def test_a_migration_that_waits_for_a_lock_blocks_no_request(
    api: Client, owner: asyncpg.Connection, database: str, tmp_path: Path
) -> None:
    invoice_id = await create_invoice(api)
    text = (
        f"-- compatible: {newest_number(read_migrations())}\n"
        "alter table documents add column more int;"
    )
    folder = add_migration(tmp_path, "9999_more.sql", text)
    async with owner.transaction():
        await owner.fetchval("select count(*) from documents")
        migrating = asyncio.create_task(migrate(database, folder))
        await until(lambda: _waits_for_table(owner))
        statuses = [(await api.get(f"/api/invoices/{invoice_id}")).status for _ in range(20)]
        assert set(statuses) == {200} and not migrating.done()
    assert await migrating == ["9999_more.sql"]
    assert (await get_invoice(api, invoice_id))["status"] == "Draft"


@pytest.mark.own_service
async def test_request_bodies_of_a_company_are_a_503_beyond_a_third_of_the_memory(
    api: Client, environment: dict[str, str]
) -> None:
    """Each request sends nearly two megabytes, and the rest of its body later."""
    counted = 2**21 - 8 - UNCOUNTED_BYTES
    fitting = MAX_UPLOAD_BYTES // 3 // counted
    waiting, more = await begin_bodies(api, "/api/invoices", fitting)
    await wait_until(lambda: taken(api) == fitting * counted)
    assert is_unavailable(await api.post("/api/invoices", data=b" " * (2**21 - 8)))
    assert not any(task.done() for task in waiting)
    other = {"X-API-Key": (await make_company(environment)).key}
    await expect(api, 201, "POST", "/api/invoices", json=invoice(), headers=other)
    more.set()
    assert {(await task).status for task in waiting} == {400}
    assert await create_invoice(api)
    assert taken(api) == 0


@pytest.mark.own_service
async def test_slow_bodies_of_strangers_take_no_memory_from_companies(api: Client) -> None:
    counted = 60_000 - UNCOUNTED_BYTES
    fitting = MAX_PUBLIC_UPLOAD_BYTES // 3 // counted
    waiting, more = await begin_bodies(api, "/sign-in", fitting, size=60_000)
    await wait_until(lambda: taken(api) == fitting * counted)
    assert is_unavailable(await api.post("/sign-in", data=b"a=" + b"x" * 60_000, headers=A_FORM))
    assert await create_invoice(api)
    more.set()
    assert {(await task).status for task in waiting} == {413}
    assert taken(api) == 0


A_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def begin_bodies(
    api: Client, path: str, count: int, size: int = 2**21 - 8
) -> tuple[list[asyncio.Task[aiohttp.ClientResponse]], asyncio.Event]:
    """Send so many bodies without their last bytes, which follow the event."""
    more = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"type":' + b" " * (size - 8)
        await more.wait()
        yield b" " * 8

    form = A_FORM if path == "/sign-in" else {"Content-Type": "application/json"}
    headers = {**form, "Content-Length": str(size + 8)}
    return [
        asyncio.create_task(api.post(path, data=slowly(), headers=headers)) for _ in range(count)
    ], more


async def _waits_for_table(owner: asyncpg.Connection) -> bool | None:
    return await owner.fetchval(
        """
        select exists (select from pg_locks
                        where database = (select oid from pg_database
                                           where datname = current_database())
                          and relation = 'documents'::regclass and not granted)
        """
    )


def test_the_rate_limiter_keeps_a_limited_number_of_keys() -> None:
    limiter = RateLimiter(60)
    for number in range(MAX_BUCKETS + 10):
        limiter.take(f"key-{number}")
    assert len(limiter._buckets) == MAX_BUCKETS


def test_the_rate_limiter_keeps_names_of_a_fixed_size() -> None:
    limiter = RateLimiter(1)
    tracemalloc.start()
    try:
        for number in range(20):
            assert limiter.take(("account", f"{number}{'a' * 1_000_000}")) == 0
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    assert limiter.take(("address", f"1{'a' * 1_000_000}")) == 0
    assert limiter.take(("account", f"1{'a' * 1_000_000}")) > 0


async def test_a_company_has_one_export_at_a_time(
    api: Client, owner: asyncpg.Connection, environment: dict[str, str]
) -> None:
    await insert_copies(owner, await create_invoice(api), 603, remark="x" * 40_000)
    path, other = "/api/invoices/export-all", {"X-API-Key": (await make_company(environment)).key}
    async with api.get(path) as one:
        await one.content.readexactly(10_000)
        async with api.get(path) as response:
            assert response.status == 429 and int(response.headers["Retry-After"]) >= 1
        async with api.head(path) as response:
            assert response.status == 200
        assert await request_json(api, "get", path, headers=other) == (200, [])
        assert (await one.read()).endswith(b"]")
    assert len((await request_json(api, "get", path))[1]) == 603


@pytest.mark.own_service
async def test_concurrent_exports_of_a_process_are_limited(api: Client) -> None:
    path, exports = "/api/invoices/export-all", api.app[app_keys.LIMITS].exports
    async with AsyncExitStack() as stack:
        for _ in range(MAX_EXPORTS - 1):
            await stack.enter_async_context(exports.one())
        await expect(api, 200, "GET", path)
        await stack.enter_async_context(exports.one())
        async with api.get(path) as response:
            assert is_unavailable(response) and (await response.json())["code"] == "busy"
    await expect(api, 200, "GET", path)


async def test_a_concurrency_limiter_rejects_a_block_after_its_patience() -> None:
    limiter = ConcurrencyLimiter(2, TooManyRequests, "Busy.", patience=0.01)
    async with limiter.one("a"), limiter.one("a"), limiter.one("b"):
        with pytest.raises(TooManyRequests, match="Busy"):
            async with limiter.one("a"):
                pass
    async with limiter.one("a"):
        pass
    assert not limiter._semaphores and not limiter._blocks


async def test_a_concurrency_limiter_grants_waiting_blocks_in_their_order() -> None:
    limiter, order = ConcurrencyLimiter(1, Unavailable, "Busy.", patience=60), list[int]()

    async def run(number: int) -> None:
        async with limiter.one("a"):
            order.append(number)

    async with limiter.one("a"):
        tasks = [asyncio.create_task(run(number)) for number in range(5)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == list(range(5))


async def test_a_large_document_blocks_no_other_request(api: Client) -> None:
    """Other requests are answered while the document is checked in a thread."""
    lines = [line(classifications=[f"{code:03}" for code in range(1, 46)]) for _ in range(610)]
    stored = json_codec.measure_stored_bytes(invoice(lineItems=lines))
    assert 280_000 < stored <= json_codec.MOST_STORED_BYTES
    invoice_id = await create_invoice(api, lineItems=lines)
    checked = asyncio.create_task(api.post(f"/api/invoices/{invoice_id}/preflight", json={}))
    answers = 0
    while not checked.done():
        answers += (await api.get("/healthz")).status == 200
    response = await checked
    body = await response.json()
    assert response.status == 200, body
    assert "MaximumSizeExceeded" in [error["code"] for error in body["errors"]]
    assert answers > 3  # without a thread, the first two would be answered after the check
