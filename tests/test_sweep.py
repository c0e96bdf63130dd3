"""What the portal has is held against what we know: nothing there twice, nothing unaccounted for, nothing missing."""

import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import Sandbox, Templates, administer, make_company, renamed, until, variables
from kit import cancelled, created, documents, now, reaches, record, submitted, valid_invoice

from service.app import create_app
from service.commands.companies import CommandError, share_tin
from service.commands.reconcile import (
    attention,
    hold_sending,
    reconcile,
    resolve_finding,
    settle_submission,
)
from service.commands.serve import DEMO_COMPANY
from service.config import read_config
from service.portal.client import Portal, portal_session


@pytest.fixture
async def elsewhere(
    cluster: str, templates: Templates, sandbox: Sandbox, aiohttp_client: Any
) -> AsyncIterator[Any]:
    """Makes a client of a service of the same taxpayer on a database of its own, as other software would be."""
    name = f"test_{secrets.token_hex(6)}"
    await administer(
        cluster, f"create database {name} template {templates.empty} strategy file_copy"
    )
    environment = variables(renamed(cluster, name), sandbox.base)
    app = create_app(read_config(environment))
    client = await aiohttp_client(app, headers={"X-API-Key": (await make_company(environment)).key})
    yield client
    await client.close()
    await administer(cluster, f"drop database {name} with (force)")


@pytest.fixture
def config(environment):
    return read_config(environment)


async def findings(config, **options):
    """What of a sweep is open, once everything has settled."""
    result = await reconcile(config, **options)
    return [one for company in result["companies"] for one in company["findings"]]


async def found(config, kind):
    """The one finding, of a kind, once the portal's document has settled."""
    (one,) = await until(lambda: findings(config), bool)
    assert one["kind"] == kind, one
    return one


async def test_nothing_is_found_where_all_is_well(api, config, company):
    ids = [await valid_invoice(api) for _ in range(3)]
    result = await reconcile(config)
    assert result["open"] == 0 and result["companies"][0]["listed"] == len(ids)
    other = await reconcile(config, company=company.id, days=31)
    assert other["open"] == 0 and other["companies"][0]["days"] == 31


async def test_a_document_that_no_attempt_accounts_for_keeps_its_number_from_being_sent(
    api, config, elsewhere, sandbox
):
    await valid_invoice(elsewhere, code=77, issueDateTime=now(minutes=5))
    orphan = await found(config, "orphan")
    (entry,) = await sandbox.ledger()
    assert (orphan["number"], orphan["uuid"]) == ("INV-00077", entry["uuid"])
    id = await created(api, code=77)
    status, body = await submitted(api, id)
    assert (
        status == 400
        and body["errors"][0]["code"] == "NumberAtPortal"
        and entry["uuid"] in body["errors"][0]["message"]
    )
    assert (await record(api, id))["status"] == "Draft" and len(await sandbox.ledger()) == 1
    assert (await submitted(api, await created(api, code=78)))[0] == 200
    await resolve_finding(config, [orphan["id"]], "Sent by our former software.")
    assert (await submitted(api, id))[0] == 200
    assert (await reconcile(config))["open"] == 0


async def test_what_was_let_go_too_early_is_found_and_a_repeat_takes_it_over(
    start, config, company, sandbox
):
    api = await start(company, PORTAL_SETTLE_SECONDS="0.1", PORTAL_PROOF_GAP_SECONDS="0.05")
    await sandbox.settings(search_lag_seconds=3600)
    await sandbox.fault("submit", "accept_then_drop")
    id = await created(api)
    assert (await submitted(api, id))[0] == 400
    await reaches(api, id, "Draft")
    await sandbox.settings(search_lag_seconds=0)
    await found(config, "orphan")
    await until(lambda: submitted(api, id), lambda answer: answer[0] == 200)
    await reaches(api, id, "Valid")
    assert len(await sandbox.ledger()) == 1 and await findings(config) == []


async def test_an_orphan_that_is_cancelled_at_the_portal_is_settled_by_the_next_sweep(
    config, elsewhere, company, sandbox, owner
):
    await valid_invoice(elsewhere)
    orphan = await found(config, "orphan")
    await sandbox.cancel(orphan["uuid"], "Sent twice")
    assert await findings(config) == []
    assert await owner.fetchval("select resolved_by from sweep_findings") == "sweep"


async def test_a_second_document_of_an_attempt_names_the_later_one(api, config, owner, sandbox):
    await sandbox.settings(payload_detection=False, duplicate_detection=False)
    id = await valid_invoice(api)
    row = await owner.fetchrow("select tin, body from submissions")
    async with portal_session(config) as session:
        again = await Portal(session, config).submit(row["tin"], row["body"])
    second = await found(config, "duplicate")
    ours = (await documents(api, id))[0]["uuid"]
    assert (second["other_uuid"], second["uuid"]) == (ours, *again.accepted.values())
    assert second["cancellable_until"] > second["received_at"]
    assert await owner.fetchval("select count(*) from portal_sightings") == 2


async def test_a_document_that_the_portal_does_not_list_is_missing_until_it_does(
    api, config, sandbox
):
    await sandbox.settings(search_lag_seconds=3600)
    id = await valid_invoice(api)
    gone = await found(config, "missing")
    assert gone["uuid"] == (await documents(api, id))[0]["uuid"]
    await sandbox.settings(search_lag_seconds=0)
    assert await findings(config) == []


async def test_what_is_underway_is_no_finding(api, config, sandbox):
    await sandbox.settings(search_lag_seconds=3600)
    await sandbox.fault("submit", "accept_then_drop")
    id = await created(api)
    assert (await submitted(api, id))[0] == 400
    await sandbox.settings(search_lag_seconds=0)
    assert await findings(config) == []
    await reaches(api, id, "Valid")
    assert await findings(config) == []


async def test_the_background_sweeps_by_itself(start, company, owner, elsewhere):
    api = await start(company, SWEEP_SECONDS="0.2")
    await valid_invoice(elsewhere)
    await valid_invoice(api)
    kind = await until(lambda: owner.fetchval("select kind from sweep_findings"))
    assert kind == "orphan"


async def test_one_process_at_a_time_sweeps_a_company_and_another_when_it_has_died(
    start, company, owner
):
    api = await start(company, background=False)
    assert (await submitted(api, await created(api)))[0] == 200
    claim = "select fence from claim_sweep(interval '1 hour', interval '0', interval '0')"
    assert [await owner.fetchval(claim) for _ in range(2)] == [1, None]
    await owner.execute("update sweeps set lease_until = now() - interval '1 second'")
    assert [await owner.fetchval(claim) for _ in range(2)] == [2, None]


async def test_what_cannot_be_asked_is_said(config, company, sandbox):
    await sandbox.fault("search", "error_before", status=503, times=5)
    result = await reconcile(config)
    assert result["failed"] == 1 and "error" in result["companies"][0]
    with pytest.raises(CommandError):
        await reconcile(config, days=32)


async def test_a_document_of_a_submission_in_manual_review_is_adoptable(
    start, config, company, sandbox, owner
):
    """It is no orphan, which somebody might cancel. The command that is shown adopts it."""
    api = await start(company, background=False)
    await sandbox.fault("submit", "accept_then_drop")
    id = await created(api, code=77)
    assert (await submitted(api, id))[0] == 400
    await owner.execute("update submissions set state = 'NeedsPerson', lease_until = null")
    submission = await owner.fetchval("select id from submissions")
    (entry,) = await sandbox.ledger()
    adoptable = await found(config, "adoptable")
    assert adoptable["uuid"] == entry["uuid"] and adoptable["cancellable_until"] is None
    shown = await attention(config)
    command = f"python run.py settle-submission {submission} --company {company.id} --received {entry['uuid']} --note …"
    assert shown["submissions"][0]["adopt_with"] == shown["findings"][0]["adopt_with"] == command
    assert (
        "cancellable_until" not in shown["findings"][0]
        and "adopts it" in shown["findings"][0]["what"]
    )
    await settle_submission(config, company.id, submission, [entry["uuid"]], "As proposed.")
    assert (await attention(config))["findings"] == []
    await start(company)
    await reaches(api, id, "Valid")
    assert await findings(config) == []


async def test_an_adoptable_document_does_not_keep_a_hold(start, config, company, sandbox, owner):
    api = await start(company, background=False)
    await sandbox.fault("submit", "accept_then_drop")
    assert (await submitted(api, await created(api)))[0] == 400
    await owner.execute("update submissions set state = 'NeedsPerson', lease_until = null")
    await hold_sending(config, "A test.")
    result = await until(
        lambda: reconcile(config), lambda result: not result["companies"][0]["held"]
    )
    assert [one["kind"] for one in result["companies"][0]["findings"]] == ["adoptable"]


async def test_a_cancellation_by_somebody_else_is_found_once(
    start, config, company, sandbox, owner
):
    api = await start(company)
    id = await valid_invoice(api)
    uuid = (await documents(api, id))[0]["uuid"]
    await sandbox.cancel(uuid, "On the portal's page")
    finding = await found(config, "cancelled_elsewhere")
    assert (finding["uuid"], finding["reason"]) == (uuid, "On the portal's page") and finding[
        "cancelled_at"
    ]
    assert finding["cancellable_until"] is None
    (shown,) = (await attention(config))["findings"]
    assert (
        shown["reason"] == "On the portal's page" and "no request of this service" in shown["what"]
    )
    assert len(await findings(config)) == 1
    await owner.execute("update submissions set not_before = now()")
    other = await start(company)  # looks again by itself
    await until(lambda: record(other, id), lambda found: found["status"] == "Cancelled")
    assert len(await findings(config)) == 1
    await owner.execute("update sweep_findings set found_at = found_at - interval '25 hours'")
    assert await findings(config) == [] == await findings(config)


async def test_a_cancellation_by_the_company_itself_is_not_found(api, config):
    id = await valid_invoice(api)
    assert (await cancelled(api, id))[0] == 200
    assert await findings(config) == []


async def test_a_uuid_that_another_company_has_recorded_is_found(
    start, environment, company, config, sandbox, owner
):
    """The portal named the uuid of one company's document in another's receipt."""
    api = await start(company)
    id = await valid_invoice(api)
    uuid = (await documents(api, id))[0]["uuid"]
    other = await make_company(
        environment, tin_code="C20880050020", name="Teh Tarik Utara Sdn. Bhd."
    )
    await sandbox.fault("submit", "other_uuid", uuid=uuid)
    stranger = await start(other)
    assert (await submitted(stranger, await created(stranger)))[0] == 400
    result = await until(
        lambda: reconcile(config, company=company.id), lambda result: result["open"]
    )
    (finding,) = result["companies"][0]["findings"]
    assert (finding["kind"], finding["uuid"]) == ("shared_uuid", uuid) and str(
        other.id
    ) not in finding.values()
    (shown,) = [
        one for one in (await attention(config))["findings"] if one["kind"] == "shared_uuid"
    ]
    assert shown["companies"] == [other.id] and "cancellable_until" not in shown
    assert (await submitted(api, await created(api)))[0] == 200


async def test_a_neighbours_unknown_document_is_no_orphan(
    start, environment, company, config, sandbox, owner
):
    """Two companies have one TIN. The one's document, whose answer was lost, is nothing that the other may cancel."""
    api = await start(company, background=False)
    other = await make_company(
        environment, tin_code="C20880050020", name="Teh Tarik Utara Sdn. Bhd."
    )
    await share_tin(config, DEMO_COMPANY["tin_code"], "Two branches")
    await owner.execute(
        "update companies set tin_code = (select tin_code from companies where id = $1)", company.id
    )
    await sandbox.fault("submit", "accept_then_drop")
    assert (await submitted(api, await created(api)))[0] == 400
    neighbour = await start(other, background=False)
    assert (await submitted(neighbour, await created(neighbour)))[0] == 200
    await until(
        lambda: reconcile(config, company=other.id),
        lambda result: result["companies"][0]["listed"] == 2,
    )
    await settled(owner)
    assert (await reconcile(config, company=other.id))["open"] == 0


async def settled(owner):
    """Wait until what was sent has settled, so that the sweep judges it."""
    await until(
        lambda: owner.fetchval(
            "select max(last_sent_at) + interval '1 second' < clock_timestamp() from submissions"
        )
    )
