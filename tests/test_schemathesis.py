"""Requests that nobody here thought of, made from the description.

No 500, no answer that it does not declare, no success for what it forbids, and a 405 to methods that it does not have.
`make fuzz` asks for longer.
"""

import asyncio
import itertools
import json
import os
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import aiohttp
import pytest
import schemathesis
from aiohttp.test_utils import TestServer
from conftest import administer, make_company, renamed, variables
from kit import (
    GENEROUS,
    INTEGRATIONS,
    PLACES,
    answered,
    created,
    integration_key,
    last_month,
    now,
    one_of_each,
    one_of_each_integration,
    sale,
)
from processes import free_port
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
from test_validations import TIN

from service import json_codec, schema
from service.api.openapi import describe
from service.api.operations import OPERATIONS
from service.commands.serve import listening
from service.config import read_config
from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings

#: Requests per operation beside those that the limits of its schema suggest. Where nothing is said
#: it is a few, and
#: of those that the limits suggest the first fifty and then every fifth.
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
        "deterministic": True,  # much the same requests in every run
        "max-examples": EXAMPLES or 5,
        "database": "none",
        "no-shrink": True,
        "with-security-parameters": False,  # every request has its key; test_auth leaves it out
    },
    "suppress-health-check": ["all"],  # of how quickly requests are thought out
    "request-timeout": 60,
}


@pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda operation: f"{operation.method} {operation.path}"
)
def test_every_answer_is_declared(description, service, operation):
    turns = itertools.count()

    def ask(case):
        turn = next(turns)
        if not EXAMPLES and turn >= 50 and turn % 5 and case.meta.phase.name == TestPhase.COVERAGE:
            return
        if turn % 4 and case.meta.generation.mode.is_positive:
            brought_near(case, service.ids)
        if isinstance(case.body, dict):
            case.body = {name: harmless(name, value) for name, value in case.body.items()}
        response = case.call_and_validate(
            base_url=service.base, headers=service.keys, checks=CHECKS
        )
        assert response.status_code != 401

    requests_of(description, operation, ask)()


def requests_of(description, operation, ask):
    """The test of one operation. schemathesis's own decorator would think its requests out in every process at the start."""
    described, config = description[operation.path][operation.method], description.config
    settings = config.get_hypothesis_settings(operation=described, phase="fuzzing")
    config = HypothesisTestConfig(project=config, modes=list(HypothesisTestMode), settings=settings)
    return create_test(operation=described, test_func=ask, config=config)


@pytest.fixture(scope="module")
def description():
    described = json.loads(json_codec.dumps(describe(OPERATIONS, schema.ALL, schema.EXAMPLES)))
    config = schemathesis.Config.from_dict(CONFIG)
    return schemathesis.openapi.from_dict(described, config=config)


ROUNDS = 4  # records of each kind
codes = itertools.count(10**6)
#: Words that the tables and the portal know, where the schemas take any.
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


def brought_near(case, ids):
    """Ids of records that are there, words that are known, keys that are new: such a request gets past the first door."""
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
        case.body = {name: near(name, value, known) for name, value in case.body.items()}


def near(name, value, known):
    if isinstance(value, dict):
        kinds = {"buyer": "LOCAL_INDIVIDUAL", "supplier": "LOCAL_COMPANY", "registration": "NRIC"}
        kind = {"type": kinds[name]} if name in kinds and isinstance(value.get("type"), str) else {}
        return {**{part: near(part, member, known) for part, member in value.items()}, **kind}
    if isinstance(value, list):
        return [near(name, entry, known) for entry in value]
    if isinstance(value, float):
        return round(value, 2) or (value and 0.01)
    if name in ("code", "adjustmentNoteCode") and isinstance(value, int):
        return next(codes)
    if name in ("issueDateTime", "adjustmentNoteIssueDate") and isinstance(value, str):
        return now()
    return known[name] if name in known and isinstance(value, type(known[name])) else value


def harmless(name, value):
    """No address that is not on this machine; no number with so many digits that nothing else of its body is looked at."""
    if isinstance(value, dict):
        return {part: harmless(part, member) for part, member in value.items()}
    if isinstance(value, list):
        return [harmless(name, entry) for entry in value]
    if name == "url" and isinstance(value, str) and value.startswith("http"):
        return "http://127.0.0.1:9/"
    return 0.01 if isinstance(value, float) and 0 < abs(value) < 1e-9 else value


@pytest.fixture(scope="module")
def service(cluster, templates, tmp_path_factory):
    """The service in a thread, with a few records: base, keys, ids."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    running = _running(cluster, templates.empty, tmp_path_factory.mktemp("schemathesis"))
    try:
        yield run(running.__aenter__())
        run(running.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@asynccontextmanager
async def _running(cluster, template, folder):
    name = f"{template}_schemathesis"
    await administer(cluster, f"create database {name} template {template} strategy file_copy")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(administer, cluster, f"drop database {name} with (force)")
        settings = Settings(
            state=str(folder / "sandbox.sqlite3"), processing_seconds=0, rate_scale=0
        )
        sandbox = await stack.enter_async_context(TestServer(create_sandbox(settings)))
        portal = str(sandbox.make_url("")).rstrip("/")
        environment = {
            **variables(renamed(cluster, name), portal),
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
        integration = await integration_key(environment)
        await stack.enter_async_context(listening(config))
        base = f"http://{config.host}:{config.port}"
        keys = {"X-API-Key": company.key, "X-Portal-Key": integration["key"]}
        async with aiohttp.ClientSession(base, headers=keys) as session:
            for number in range(ROUNDS):
                await created(session)
                await sale(session)
                for place, id in (await one_of_each(session)).items():
                    if number % 2:
                        await answered(session, "POST", f"{place}/{id}/submit-to-portal", json={})
                await one_of_each_integration(
                    session, environment, integration["account_id"], company.id
                )
            ids = await _ids(session)
        yield SimpleNamespace(base=base, keys=keys, ids=ids)


async def _ids(session):
    """{path of a list: the ids in it}, also of the lists below each record."""
    places = (*PLACES, f"{INTEGRATIONS}users", f"{INTEGRATIONS}organizations")
    ids = {place: await _listed(session, place) for place in places}
    records = [f"{place}/{id}" for place in PLACES for id in ids[place]]
    below = [
        f"{record}/{part}" for record in records for part in ("submitted-documents", "deliveries")
    ]
    return {**ids, **{place: await _listed(session, place) for place in below}}


async def _listed(session, place):
    _status, body = await answered(session, "GET", f"{place}?per_page=100")
    rows = body if isinstance(body, list) else body.get("data", ())
    return [row["id"] for row in rows]
