"""Metrics: their names, and what changes them."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest

from service.monitoring import gauges
from service.monitoring.metrics import REGISTRY, count_response
from service.version import VERSION
from tests.api_invoices import create_invoice, create_submitted_invoice, create_valid_invoice
from tests.api_requests import request_json, submit
from tests.conftest import AnyClient, Client, Sandbox, StartService, until
from tests.fixtures_webhooks import Receiver, create_endpoint
from tests.harness.companies import AUTOMATIC
from tests.harness.environments import GENEROUS
from tests.harness.network import Network
from tests.harness.processes import free_port

Metrics = Mapping[str, float]
#: Metrics that are counted, with their types. Those of the process itself begin with process_.
COUNTED = {
    "einvoice_build_info": "gauge",
    "einvoice_requests_total": "counter",
    "einvoice_request_duration_seconds": "histogram",
    "einvoice_submission_moves_total": "counter",
    "einvoice_document_outcomes_total": "counter",
    "einvoice_portal_request_duration_seconds": "histogram",
    "einvoice_portal_wait_seconds_total": "counter",
    "einvoice_webhook_attempt_duration_seconds": "histogram",
    "einvoice_event_loop_lag_seconds": "histogram",
    "einvoice_reads_total": "counter",
}


@pytest.fixture(autouse=True)
def _read_at_every_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "CACHE_SECONDS", 0)


async def get_text(api: AnyClient) -> str:
    async with api.get("/metrics") as response:
        assert response.status == 200
        return await response.text()


async def get_metrics(api: AnyClient) -> Metrics:
    """Return the samples by name and labels."""
    lines = (await get_text(api)).splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


async def has_metrics(api: AnyClient, expected: Metrics) -> None:
    """Wait until metrics have values."""
    await until(
        lambda: get_metrics(api),
        lambda found: {name: found.get(name) for name in expected} == expected,
    )


class Growth:
    """The growth of counters since it was made. They belong to the process of the tests."""

    def __init__(self, api: AnyClient, before: Metrics) -> None:
        self._api, self._before = api, before

    @classmethod
    async def start(cls, api: AnyClient) -> "Growth":
        return cls(api, await get_metrics(api))

    async def reaches(self, wanted: Metrics) -> None:
        """Wait until counters have grown by numbers."""

        async def read() -> dict[str, float]:
            now = await get_metrics(self._api)
            return {name: now.get(name, 0) - self._before.get(name, 0) for name in wanted}

        await until(read, lambda grown: grown == wanted)


async def test_metrics_have_types(start: StartService) -> None:
    api = await start()
    text = await get_text(api)
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    own = {name: kind for name, kind in types.items() if name.startswith("einvoice_")}
    assert own == {**dict.fromkeys(gauges.GAUGES, "gauge"), **COUNTED}
    assert {"process_resident_memory_bytes", "process_start_time_seconds"} < types.keys()
    assert "_created" not in text
    assert f'version="{VERSION}"' in text


# Requests


async def test_requests_are_counted_by_route_and_timed_by_class_of_status(idle: Client) -> None:
    growth = await Growth.start(idle)
    for path in ("/api/invoices/7", "/api/invoices/8", "/api/invoices?page=0", "/no/such/path"):
        async with idle.get(path) as response:
            await response.read()
    of_record = 'method="GET",route="/api/invoices/{id}",status='
    await growth.reaches(
        {
            f'einvoice_requests_total{{{of_record}"404"}}': 2,
            f'einvoice_request_duration_seconds_count{{{of_record}"4xx"}}': 2,
            'einvoice_requests_total{method="GET",route="/api/invoices",status="422"}': 1,
            'einvoice_requests_total{method="GET",route="unknown",status="404"}': 1,
        }
    )


async def test_labels_of_requests_hold_no_text_of_clients(idle: Client) -> None:
    for method, path in (("PURGE", "/api/invoices"), ("GET", "/marzipan"), ("PUT", "/%6darzi")):
        async with idle.request(method, path):
            pass
    text = await get_text(idle)
    assert "marzi" not in text.lower()
    assert 'method="?",route="unknown",status="405"' in text
    assert "PURGE" not in text


def test_times_are_in_the_buckets_of_their_size() -> None:
    for status, seconds in ((200, 0.005), (200, 0.0051), (200, 31.0), (204, 0.02)):
        count_response("GET", "/x", status, seconds)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.labels.get("route") == "/x"
    }
    requests = [(key[-1], n) for key, n in samples.items() if key[0] == "einvoice_requests_total"]
    assert requests == [("200", 3), ("204", 1)]
    times = "einvoice_request_duration_seconds"
    counts = [n for key, n in samples.items() if key[0] == f"{times}_bucket"]
    assert counts[:3] == [1, 2, 3] and counts[-2:] == [3, 4]
    assert samples[f"{times}_sum", "GET", "/x", "2xx"] == pytest.approx(31.0301)


# Submissions and the portal


async def test_submissions_are_counted_by_state_outcome_and_portal_request(
    start: StartService,
) -> None:
    api = await start()
    growth = await Growth.start(api)
    await create_valid_invoice(api)
    request = 'einvoice_portal_request_duration_seconds_count{operation="submit",outcome="ok"}'
    await growth.reaches(
        {
            'einvoice_submission_moves_total{state="Sending"}': 1,
            'einvoice_submission_moves_total{state="Accepted"}': 1,
            'einvoice_document_outcomes_total{kind="invoice",status="Submitted"}': 1,
            'einvoice_document_outcomes_total{kind="invoice",status="Valid"}': 1,
            request: 1,
        }
    )


@pytest.mark.parametrize(
    "fault, outcome",
    [
        ({"kind": "error_before", "status": 503}, "error"),
        ({"kind": "error_before", "status": 429}, "throttled"),
        ({"kind": "drop"}, "no_response"),
    ],
)
async def test_failed_portal_requests_are_counted_by_outcome(
    idle: Client, sandbox: Sandbox, fault: Any, outcome: str
) -> None:
    growth = await Growth.start(idle)
    await sandbox.fault("submit", **fault)
    await submit(idle, await create_invoice(idle))
    name = "einvoice_portal_request_duration_seconds_count"
    await growth.reaches({f'{name}{{operation="submit",outcome="{outcome}"}}': 1})


async def test_unreachable_portal_is_an_outcome(start: StartService) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    api = await start(background=False, PORTAL_API_BASE=nowhere, PORTAL_IDENTITY_BASE=nowhere)
    growth = await Growth.start(api)
    assert (await submit(api, await create_invoice(api)))[0] == 400
    name = "einvoice_portal_request_duration_seconds_count"
    await growth.reaches({f'{name}{{operation="login",outcome="unreachable"}}': 1})


async def test_waiting_submissions_have_state_number_and_age(
    start: StartService, owner: asyncpg.Connection
) -> None:
    await owner.execute(AUTOMATIC)
    api = await start(background=False)
    await create_invoice(api, isReady=True)
    await owner.execute(
        "update submissions set created_at = now() - interval '2 hours',"
        " not_before = now() - interval '1 hour'"
    )
    found = await get_metrics(api)
    assert found['einvoice_submissions{state="Queued"}'] == 1
    assert found['einvoice_submissions_due{state="Queued"}'] == 1
    assert 3600 <= found['einvoice_submissions_due_seconds{state="Queued"}'] < 3700
    assert 7200 <= found['einvoice_submissions_oldest_seconds{state="Queued"}'] < 7300
    assert found['einvoice_submissions{state="NeedsPerson"}'] == 0


async def test_accepted_submissions_with_an_outcome_do_not_wait(start: StartService) -> None:
    api = await start()
    await create_valid_invoice(api)
    await has_metrics(
        api, {f'einvoice_submissions{{state="{state}"}}': 0 for state in ("Accepted", "Sending")}
    )


async def test_portal_quota_shrinks_with_each_request_and_has_pauses(
    start: StartService, owner: asyncpg.Connection
) -> None:
    api = await start(background=False, PORTAL_RATE_SCALE="1")
    await has_metrics(api, {'einvoice_portal_quota_remaining{operation="submit"}': 100})
    await create_submitted_invoice(api)
    found = await get_metrics(api)
    assert found['einvoice_portal_quota{operation="submit"}'] == 100
    assert found['einvoice_portal_quota_remaining{operation="submit"}'] == 99
    assert found['einvoice_portal_quota_remaining{operation="login"}'] == 11
    assert found['einvoice_portal_pause_seconds{operation="submit"}'] == 0
    await owner.execute(
        "update portal_buckets set paused_until = now() + interval '1 hour'"
        " where operation = 'submit'"
    )
    found = await get_metrics(api)
    assert 3500 < found['einvoice_portal_pause_seconds{operation="submit"}'] <= 3600


async def test_portal_quota_is_the_share_of_the_cell(start: StartService) -> None:
    rates = {"PORTAL_RATE_SCALE": "1", "PORTAL_RATE_SHARE": "0.25"}
    api = await start(background=False, **rates)
    await has_metrics(api, {'einvoice_portal_quota{operation="submit"}': 25})


async def test_no_quota_is_shown_without_rate_limits(start: StartService) -> None:
    api = await start(background=False, PORTAL_RATE_SCALE="0")
    assert not any(name.startswith("einvoice_portal_quota{") for name in await get_metrics(api))


# Webhooks


async def test_webhook_attempts_are_counted_by_outcome(
    start: StartService, receiver: Receiver
) -> None:
    api = await start(**GENEROUS, WEBHOOK_RETRY_SCALE="0.001")
    growth = await Growth.start(api)
    receiver.answers = [500, 200]
    await create_endpoint(api, receiver.url)
    await create_invoice(api)
    name = "einvoice_webhook_attempt_duration_seconds_count"
    await growth.reaches({f'{name}{{outcome="rejected"}}': 1, f'{name}{{outcome="delivered"}}': 1})


async def test_waiting_deliveries_of_enabled_webhooks_are_counted(
    idle: Client, owner: asyncpg.Connection
) -> None:
    await create_invoice(idle)
    await owner.execute(
        "insert into webhook_endpoints (company_id, url, enabled)"
        " select id, 'https://x.example', enabled from companies, unnest('{t,f}'::bool[]) enabled;"
        " insert into webhook_deliveries (company_id, endpoint_id, event_id, next_attempt_at)"
        " select w.company_id, w.id, (select min(id) from events), now() - interval '1 hour'"
        "   from webhook_endpoints w"
    )
    found = await get_metrics(idle)
    assert found["einvoice_webhook_deliveries"] == found["einvoice_webhook_deliveries_due"] == 1
    assert 3600 <= found["einvoice_webhook_deliveries_due_seconds"] < 3700


# The process


async def test_pools_show_their_size_use_and_waiting_callers(
    start: StartService, owner: asyncpg.Connection
) -> None:
    """A request waits for a lock, and the others for its connection: a company gets no second."""
    api = await start(POOL_SIZE="2", DATABASE_ACQUIRE_SECONDS="30")
    idle = {
        f'einvoice_pool_{name}{{pool="requests"}}': n for name, n in (("size", 2), ("waiting", 0))
    }
    await has_metrics(api, idle)
    assert (await get_metrics(api))['einvoice_pool_size{pool="background"}'] == 4
    invoice_id = await create_invoice(api)
    async with owner.transaction():
        await owner.execute("lock table documents in access exclusive mode")
        tasks = [
            asyncio.create_task(request_json(api, "DELETE", f"/api/invoices/{invoice_id}"))
            for _ in range(4)
        ]
        await has_metrics(
            api,
            {
                'einvoice_pool_in_use{pool="requests"}': 1,
                'einvoice_pool_waiting{pool="requests"}': 3,
                "einvoice_database_up": 1,
            },
        )
    await asyncio.gather(*tasks)


async def test_metrics_are_shown_without_a_database(start: StartService, database: str) -> None:
    network = Network(database)
    await network.heal()
    try:
        api = await start(
            DATABASE_URL=network.url,
            DATABASE_OWNER_URL=database,
            DATABASE_ACQUIRE_SECONDS="0.2",
        )
        assert (await get_metrics(api))["einvoice_database_up"] == 1
        await network.refuse()
        found = await until(
            lambda: get_metrics(api), lambda found: found["einvoice_database_up"] == 0
        )
        assert 'einvoice_submissions{state="Queued"}' not in found
        await network.heal()
        await has_metrics(api, {"einvoice_database_up": 1})
    finally:
        await network.refuse()


async def test_worker_shows_its_queues_and_the_event_loop_its_lag(start: StartService) -> None:
    api = await start()
    found = await get_metrics(api)
    queues = ("sends", "lookups", "polls", "cancellations")
    assert {found[f'einvoice_worker_tasks{{queue="{queue}"}}'] for queue in queues} == {0}
    lags = "einvoice_event_loop_lag_seconds_count"
    await until(lambda: get_metrics(api), lambda now: now[lags] > found[lags])


async def test_scrapes_share_a_reading_of_the_database(
    start: StartService, monkeypatch: pytest.MonkeyPatch, owner: asyncpg.Connection
) -> None:
    monkeypatch.setattr(gauges, "CACHE_SECONDS", 3600)
    await owner.execute(AUTOMATIC)
    api = await start(background=False)
    await asyncio.gather(*[get_text(api) for _ in range(4)])
    await create_invoice(api, isReady=True)
    assert (await get_metrics(api))['einvoice_submissions{state="Queued"}'] == 0
