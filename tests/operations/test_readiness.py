"""Readiness while the portal cannot be reached or refuses the login: degraded, and still ready."""

from typing import Any

import pytest
from aiohttp import web

from service.config import read_config
from service.portal.client import Portal, portal_session
from service.portal.errors import NotSent
from tests.api_invoices import create_invoice
from tests.api_requests import submit
from tests.conftest import Client, Sandbox, StartService, until
from tests.harness.processes import free_port
from tests.operations.test_watchdog import get_readiness

TIN = "C20880050010"
WATCHFUL = {"WATCHDOG_SECONDS": "0.1"}


async def wait_for_reasons(api: Client, *reasons: str) -> dict[str, Any]:
    return await until(lambda: get_readiness(api), lambda body: body["reasons"] == [*reasons])


async def answer(_: web.BaseRequest) -> web.Response:
    return web.Response(status=404)


async def test_unreachable_portal_degrades_the_service_until_it_responds(
    start: StartService,
) -> None:
    """The recovery is noticed without a submission."""
    port = free_port()
    nowhere = f"http://127.0.0.1:{port}"
    api = await start(
        background=False,
        PORTAL_API_BASE=nowhere,
        PORTAL_IDENTITY_BASE=nowhere,
        **WATCHFUL,
    )
    assert (await wait_for_reasons(api))["status"] == "ok"
    assert (await submit(api, await create_invoice(api)))[0] == 400
    body = await wait_for_reasons(api, "PortalUnreachable")
    assert body["status"] == "degraded"
    (condition,) = [one for one in body["conditions"] if one["kind"] == "PortalUnreachable"]
    assert "PORTAL_API_BASE" in condition["action"]
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        assert (await wait_for_reasons(api))["status"] == "ok"
    finally:
        await runner.cleanup()


async def test_response_of_one_server_of_the_portal_does_not_hide_the_outage_of_another(
    environment: dict[str, str],
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    config = read_config({**environment, "PORTAL_IDENTITY_BASE": nowhere})
    async with portal_session() as session:
        portal = Portal(session, config)
        with pytest.raises(NotSent):
            await portal.log_in(TIN)
        since = portal.unreachable_since
        assert since and await portal.read_clock(TIN)
        await portal.reach_again()
        assert portal.unreachable_since == since


async def test_refused_credentials_degrade_the_service(start: StartService) -> None:
    api = await start(background=False, PORTAL_CLIENT_SECRET="wrong", **WATCHFUL)
    assert (await submit(api, await create_invoice(api)))[0] == 400
    body = await wait_for_reasons(api, "CredentialsRefused")
    (shown,) = body["conditions"]
    assert (body["status"], shown["kind"], shown["n"]) == ("degraded", "CredentialsRefused", 1)


async def test_readiness_sends_no_request_to_the_portal(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(background=False, **WATCHFUL)
    before = await sandbox.calls()
    for _ in range(5):
        await get_readiness(api)
    assert await sandbox.calls() == before
