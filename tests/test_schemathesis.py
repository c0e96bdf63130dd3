"""Requests that nobody here thought of, made from the description.

No 500, no answer that it does not declare, and no success for what it forbids.
"""

import asyncio
import itertools
import json
import threading
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
import schemathesis
from aiohttp.test_utils import TestServer
from conftest import _administer, _renamed, make_company, variables
from kit import created, note, now, valid_invoice
from processes import free_port
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service import schema, wire
from service.app import create_app
from service.commands.serve import listening
from service.config import read_config
from service.openapi import describe
from service.operations import OPERATIONS
from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings

EXAMPLES = 15  # requests per operation beside those that the limits of its schema suggest
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
]


def described():
    """The description of the operations that this service has; test_openapi names those that it lacks."""
    routes = create_app(read_config({}), background=False).router.routes()
    places = {(route.method, route.resource.canonical) for route in routes if route.resource}
    there = [operation for operation in OPERATIONS if (operation.method, operation.path) in places]
    return json.loads(wire.dumps(describe(there, schema.ALL, schema.EXAMPLES)))


#: The same requests in every run.
CONFIG = schemathesis.Config.from_dict(
    {"generation": {"deterministic": True, "max-examples": EXAMPLES, "database": "none", "no-shrink": True}}
)
api = schemathesis.openapi.from_dict(described(), config=CONFIG)


@api.parametrize()
def test_every_answer_is_declared(case, service):
    if case.meta.generation.mode.is_positive and next(turns) % 4:
        brought_near(case)
    case.call_and_validate(base_url=service.base, headers={"X-API-Key": service.key}, checks=CHECKS)


FEW = 18  # records of each kind
turns, codes = itertools.count(), itertools.count(10**6)
#: Codes that the tables have; their schemas take any text.
KNOWN = {"state": "10", "country": "MYS", "originCountry": "MYS", "taxType": "02", "currencyCode": "MYR", "msic": "56101"}


def brought_near(case):
    """Ids of records that are there, codes that are known, keys that are new: such a request gets past the first door."""
    for name, value in (case.path_parameters or {}).items():
        if isinstance(value, int):
            case.path_parameters[name] = value % (FEW // 3 if case.method == "DELETE" else FEW) + 1
    for name in case.headers or {}:
        if name in ("Idempotency-Key", "If-Match"):
            case.headers[name] = f"{next(codes)}" if name == "Idempotency-Key" else "*"
    if isinstance(case.body, dict):
        case.body = {name: near(name, value) for name, value in case.body.items()}


def near(name, value):
    if isinstance(value, dict):
        kinds = {"buyer": "LOCAL_INDIVIDUAL", "supplier": "LOCAL_COMPANY", "registration": "NRIC"}
        known = {"type": kinds[name]} if name in kinds and isinstance(value.get("type"), str) else {}
        return {**{part: near(part, member) for part, member in value.items()}, **known}
    if isinstance(value, list):
        return ["022"] * len(value) if name == "classifications" else [near("", entry) for entry in value]
    if isinstance(value, float):
        return round(value, 2) or (value and 0.01)
    if name in ("code", "adjustmentNoteCode") and isinstance(value, int):
        return next(codes)
    if name in ("issueDateTime", "adjustmentNoteIssueDate") and isinstance(value, str):
        return now()
    return KNOWN.get(name, value) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def service(cluster, template, tmp_path_factory):
    """The service in a thread, with a few records: base, key."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    running = _running(cluster, template, tmp_path_factory.mktemp("schemathesis"))
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
    await _administer(cluster, f"create database {name} template {template} strategy file_copy")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_administer, cluster, f"drop database {name} with (force)")
        settings = Settings(state=str(folder / "sandbox.sqlite3"), processing_seconds=0, rate_scale=0)
        sandbox = await stack.enter_async_context(TestServer(create_sandbox(settings)))
        portal = str(sandbox.make_url("")).rstrip("/")
        environment = {
            **variables(_renamed(cluster, name), portal),
            "PORT": str(free_port()),
            "REQUESTS_PER_MINUTE": "0",
        }
        config = read_config(environment)
        company = await make_company(environment)
        await stack.enter_async_context(listening(config))
        company.base = f"http://{config.host}:{config.port}"
        async with aiohttp.ClientSession(company.base, headers={"X-API-Key": company.key}) as session:
            await _fill(session)
        yield company


async def _fill(session):
    """Invoices in several states, and notes."""
    for _ in range(FEW // 2):
        await created(session)
        id = await valid_invoice(session)
        async with session.post(f"/api/invoices/{id}/adjustment-note", json=note()) as response:
            assert response.status == 201
