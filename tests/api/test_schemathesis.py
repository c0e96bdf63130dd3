"""Requests that are generated from the OpenAPI description.

No response may be a 500 or undeclared, no invalid request may succeed, and undeclared methods must
be a 405. `make fuzz` sends more requests.
"""

import asyncio
import itertools
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import schemathesis
from aiohttp.test_utils import TestServer
from schemathesis.checks import not_a_server_error
from schemathesis.generation.hypothesis.builder import (
    HypothesisTestConfig,
    HypothesisTestMode,
    create_test,
)
from schemathesis.generation.meta import TestPhase
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from service.api.table import OPERATIONS, describe_api
from service.commands.serve import serve_api
from service.config import read_config
from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings
from tests.api.test_validations import TIN
from tests.api_invoices import create_invoice, create_one_of_each, create_sale
from tests.api_requests import (
    INTEGRATIONS,
    PLACES,
    create_integration_records,
    make_account,
    request_json,
)
from tests.conftest import Templates, make_company, run_context
from tests.harness.bodies import last_month, now
from tests.harness.databases import create_database
from tests.harness.environments import GENEROUS, variables
from tests.harness.processes import free_port

pytestmark = pytest.mark.long

#: Random requests per operation. By default few, and of the boundary cases of the schema the first
#: fifty and then every fifth.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES") or 0)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
CONFIG = {
    "generation": {
        "deterministic": True,  # almost the same requests in every run
        "max-examples": EXAMPLES or 5,
        "database": "none",
        "no-shrink": True,
        "with-security-parameters": False,  # every request has its key
    },
    "suppress-health-check": ["all"],
    "request-timeout": 60,
}


@pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda operation: f"{operation.method} {operation.path}"
)
def test_every_response_is_declared(
    description: Any, service: SimpleNamespace, operation: Any
) -> None:
    turns = itertools.count()

    def send(case: Any) -> None:
        turn = next(turns)
        if not EXAMPLES and turn >= 50 and turn % 5 and case.meta.phase.name == TestPhase.COVERAGE:
            return
        if turn % 4 and case.meta.generation.mode.is_positive:
            make_realistic(case, service.ids)
        if isinstance(case.body, dict):
            case.body = {name: harmless(name, value) for name, value in case.body.items()}
        response = case.call_and_validate(
            base_url=service.base, headers=service.keys, checks=CHECKS
        )
        assert response.status_code != 401

    generate_test(description, operation, send)()


def generate_test(
    description: Any, operation: Any, send: Callable[[Any], None]
) -> Callable[[], None]:
    """Return the test of one operation.

    The decorator of schemathesis would generate the requests in every process at the start.
    """
    described, config = description[operation.path][operation.method], description.config
    settings = config.get_hypothesis_settings(operation=described, phase="fuzzing")
    config = HypothesisTestConfig(project=config, modes=list(HypothesisTestMode), settings=settings)
    return create_test(operation=described, test_func=send, config=config)


@pytest.fixture(scope="module")
def description() -> Any:
    described = json.loads(describe_api())
    config = schemathesis.Config.from_dict(CONFIG)
    return schemathesis.openapi.from_dict(described, config=config)


ROUNDS = 4  # records of each kind
codes = itertools.count(10**6)
#: Values that the tables and the portal know, where the schemas accept any string.
KNOWN = {
    **{
        "state": "10",
        "country": "MYS",
        "originCountry": "MYS",
        "taxType": "02",
        "currencyCode": "MYR",
        "msic": "56101",
    },
    **{
        **TIN,
        "tin_code": TIN["tin"],
        "msic_code": "56101",
        "month": last_month()[:7],
        "enabled": True,
    },
}
#: The same for what belongs to invoices and to consolidated ones.
OF_INVOICES = {**KNOWN, "targetInvoiceType": "INVOICE", "classifications": "022"}
OF_CONSOLIDATED = {**KNOWN, "targetInvoiceType": "CONSOLIDATED_INVOICE", "classifications": "004"}


def make_realistic(case: Any, ids: dict[str, list[int]]) -> None:
    """Put existing ids, known codes and new keys into a request, so that it passes validation."""
    place, *parts = case.path.split("/{")
    takes_away = case.method == "DELETE" or "/cancel-" in case.path
    for part in parts:
        name, _, rest = part.partition("}")
        if found := ids.get(place):
            case.path_parameters[name] = found[
                next(codes) % ((len(found) + 1) // 2 if takes_away else len(found))
            ]
        place = f"{place}/{case.path_parameters[name]}{rest}"
    for name in case.headers or {}:
        if name in ("Idempotency-Key", "If-Match"):
            case.headers[name] = f"{next(codes)}" if name == "Idempotency-Key" else "*"
    if isinstance(case.body, dict):
        known = OF_CONSOLIDATED if "consolidated" in case.path else OF_INVOICES
        case.body = {name: known_value(name, value, known) for name, value in case.body.items()}


def known_value(name: str, value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        kinds = {"buyer": "LOCAL_INDIVIDUAL", "supplier": "LOCAL_COMPANY", "registration": "NRIC"}
        kind = {"type": kinds[name]} if name in kinds and isinstance(value.get("type"), str) else {}
        parts = {part: known_value(part, member, known) for part, member in value.items()}
        return {**parts, **kind}
    if isinstance(value, list):
        return [known_value(name, entry, known) for entry in value]
    if isinstance(value, float):
        return round(value, 2) or (value and 0.01)
    if name in ("code", "adjustmentNoteCode") and isinstance(value, int):
        return next(codes)
    if name in ("issueDateTime", "adjustmentNoteIssueDate") and isinstance(value, str):
        return now()
    return known[name] if name in known and isinstance(value, type(known[name])) else value


def harmless(name: str, value: Any) -> Any:
    """Replace external addresses, and numbers so small that their digits exceed every limit."""
    if isinstance(value, dict):
        return {part: harmless(part, member) for part, member in value.items()}
    if isinstance(value, list):
        return [harmless(name, entry) for entry in value]
    if name == "url" and isinstance(value, str) and value.startswith("http"):
        return "http://127.0.0.1:9/"
    return 0.01 if isinstance(value, float) and 0 < abs(value) < 1e-9 else value


@pytest.fixture(scope="module")
def service(
    cluster: str, templates: Templates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimpleNamespace]:
    """The service in a thread with a few records: base, keys, ids."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    running = _running(cluster, templates.empty, tmp_path_factory.mktemp("schemathesis"))
    try:
        with run_context(run, running) as service:
            yield service
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@asynccontextmanager
async def _running(cluster: str, template: str, folder: Path) -> AsyncIterator[SimpleNamespace]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(create_database(cluster, template))
        settings = Settings(
            state=str(folder / "sandbox.sqlite3"), processing_seconds=0, rate_scale=0
        )
        sandbox = await stack.enter_async_context(TestServer(create_sandbox(settings)))
        portal = str(sandbox.make_url("")).rstrip("/")
        environment = {
            **variables(database, portal),
            **GENEROUS,
            "PORT": str(free_port()),
            "REQUESTS_PER_MINUTE": "0",
            "PORTAL_CONNECT_TIMEOUT_SECONDS": "10",
            "PORTAL_TIMEOUT_SECONDS": "20",
        }
        config = read_config(environment)
        company = await make_company(
            environment, tin_code=TIN["tin"], registration_number=TIN["registration_number"]
        )
        account = await make_account(environment)
        await stack.enter_async_context(serve_api(config))
        base = f"http://{config.host}:{config.port}"
        keys = {"X-API-Key": company.key, "X-Portal-Key": account.key}
        async with aiohttp.ClientSession(base, headers=keys) as session:
            for number in range(ROUNDS):
                await create_invoice(session)
                await create_sale(session)
                for place, record_id in (await create_one_of_each(session)).items():
                    if number % 2:
                        path = f"{place}/{record_id}/submit-to-portal"
                        await request_json(session, "POST", path, json={})
                await create_integration_records(session, environment, account.id, company.id)
            ids = await _ids(session)
        yield SimpleNamespace(base=base, keys=keys, ids=ids)


async def _ids(session: aiohttp.ClientSession) -> dict[str, list[int]]:
    """Return {path of a list: the ids in it}, including the lists below each record."""
    places = (*PLACES, f"{INTEGRATIONS}users", f"{INTEGRATIONS}organizations")
    ids = {place: await _listed(session, place) for place in places}
    records = [f"{place}/{record_id}" for place in PLACES for record_id in ids[place]]
    below = [
        f"{record}/{part}" for record in records for part in ("submitted-documents", "deliveries")
    ]
    return {**ids, **{place: await _listed(session, place) for place in below}}


async def _listed(session: aiohttp.ClientSession, place: str) -> list[int]:
    _status, body = await request_json(session, "GET", f"{place}?per_page=100")
    rows = body if isinstance(body, list) else body.get("data", ())
    return [row["id"] for row in rows]
