"""Consolidated invoices: eligible sales, totals, submission, cancellation and races."""

import asyncio
import random
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest
import simplejson

from service.documents import consolidation, money
from service.documents.consolidation import ConsolidationTerms
from service.documents.ubl import document
from service.documents.ubl.lines import build_line
from tests.api.test_openapi import violations
from tests.api_invoices import create_invoice, create_submitted_invoice
from tests.api_reads import get_invoice, get_json, wait_for_lock, wait_until_status
from tests.api_requests import (
    Answer,
    cancel_latest,
    expect,
    list_paths,
    list_rules,
    not_found,
    request_json,
    submit,
)
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.harness.bodies import buyer, line, note, now

PLACE = "/api/consolidated-invoices"
KL = ZoneInfo("Asia/Kuala_Lumpur")
TODAY = datetime.now(KL).date()
LAST_DAY = TODAY.replace(day=1) - timedelta(days=1)
MONTH = f"{LAST_DAY:%Y-%m}"
NOTES = "/api/adjustment-notes"
PUBLIC = {"type": "GENERAL_PUBLIC"}
PLAIN = {"taxType": "06", "taxRate": {"percentage": 0}}
SERVICE = {"taxType": "02", "taxRate": {"percentage": 8}}
FAMILIES = ("CONSOLIDATED_INVOICE", "CONSOLIDATED_SELF_BILLED_INVOICE")


@pytest.fixture
async def api(database: str, start: StartService) -> Client:
    """Return a client of a service in which last month can be consolidated on any day."""
    return await start(CONSOLIDATION_DAYS="40")


def at(day: int = 15, clock: str = "12:00:00", month: date = LAST_DAY) -> str:
    """Return an instant of last month in the business time zone, as a client writes it."""
    return f"{month:%Y-%m}-{day:02}T{clock}+08:00"


async def sale(api: Client, self_billed: bool = False, **changes: Any) -> int:
    """Create an invoice of last month that can be consolidated. Return its id."""
    parties = (
        {"type": "SELF_BILLED_INVOICE", "buyer": None, "supplier": PUBLIC}
        if self_billed
        else {"buyer": PUBLIC}
    )
    return await create_invoice(
        api, **{"issueDateTime": at(), "lineItems": [item("50")], **parties, **changes}
    )


def item(
    price: str | float, *taxes: dict[str, Any], count: float = 1, **changes: Any
) -> dict[str, Any]:
    unit = {"code": "KGM", "price": float(price), "count": count}
    return line(unit=unit, taxDetails=list(taxes or [PLAIN]), **changes)


async def post(api: Client, path: str = "", **body: Any) -> Answer:
    async with api.post(PLACE + path, json=body) as response:
        return response.status, await response.json(loads=exact_json)


def exact_json(text: str) -> Any:
    return simplejson.loads(text, use_decimal=True)


async def create(api: Client, **body: Any) -> Answer:
    wanted: dict[str, Any] = {"type": FAMILIES[0], "code": 1, "issueDateTime": now()}
    if "invoiceIds" not in body:
        wanted["month"] = MONTH
    return await post(api, **{**wanted, **body})


async def create_consolidated(api: Client, **body: Any) -> int:
    """Create a consolidated invoice and return its id."""
    status, answer = await create(api, **body)
    assert status == 201, answer
    return answer["data"]["id"]


async def get_plan(api: Client, **body: Any) -> dict[str, Any]:
    wanted = {} if "invoiceIds" in body else {"month": MONTH}
    status, answer = await post(api, "/plan", **{"type": FAMILIES[0], **wanted, **body})
    assert status == 200, answer
    return answer["data"]


async def reasons(api: Client, *ids: int, **body: Any) -> dict[int, str]:
    """Return {invoice id: reason} of the invoices that a plan excludes."""
    named = {"invoiceIds": list(ids)} if ids else {}
    return {
        each["invoice_id"]: each["reason"]
        for each in (await get_plan(api, **named, **body))["left_out"]
    }


async def read(api: Client, consolidated_id: int, path: str = "") -> Any:
    async with api.get(f"{PLACE}/{consolidated_id}{path}") as response:
        assert response.status == 200, await response.text()
        return await response.json(loads=exact_json)


async def delete(api: Client, record_id: int, place: str = PLACE) -> Answer:
    return await request_json(api, "DELETE", f"{place}/{record_id}")


async def submit_until_valid(api: Client, consolidated_id: int) -> None:
    """Submit a consolidated invoice and wait until it is Valid."""
    done = "The consolidated invoice has been submitted to the portal."
    assert await submit(api, consolidated_id, PLACE) == (200, {"success": True, "message": done})
    found = await until(
        lambda: read(api, consolidated_id), lambda found: found["status"] in ("Valid", "Invalid")
    )
    assert found["status"] == "Valid", await read(api, consolidated_id, "/submitted-documents")


async def get_consolidated_id(api: Client, invoice_id: int) -> int | None:
    return (await get_invoice(api, invoice_id))["consolidated_invoice_id"]


# Plan, creation, submission, cancellation


async def test_plan_shows_included_invoices_and_changes_nothing(
    api: Client, owner: asyncpg.Connection
) -> None:
    ids = [await sale(api, code=code) for code in (411, 412, 414)]
    named = await sale(api, code=413, buyer=buyer())
    plan = await get_plan(api)
    assert plan["month"] == MONTH and plan["invoices"] == ids and plan["refusals"] == []
    assert [each["description"] for each in plan["lines"]] == [
        "Receipts INV-00411 - INV-00412",
        "Receipt INV-00414",
    ]
    names = ("excludingTax", "includingTax", "payableAmount", "netAmount")
    assert plan["totals"] == dict.fromkeys(names, 150)
    (left,) = plan["left_out"]
    assert (left["invoice_id"], left["reason"]) == (named, "named") and left["message"]
    assert await get_consolidated_id(api, ids[0]) is None
    made = "select count(*) from documents where kind = 'consolidated_invoice'"
    assert await owner.fetchval(made) == 0


async def test_plan_counts_submitted_invoices_instead_of_listing_them(
    api: Client, owner: asyncpg.Connection
) -> None:
    open_sale, named = await sale(api), await sale(api, buyer=buyer())
    submitted = await create_submitted_invoice(api, issueDateTime=now())
    await owner.execute("update documents set issue_date = $1", datetime.fromisoformat(at()))
    for omit, listed in ((False, {named, submitted}), (True, {named})):
        plan = await get_plan(api, omitSubmitted=omit)
        assert plan["invoices"] == [open_sale] and plan["submitted_count"] == 1
        assert {each["invoice_id"] for each in plan["left_out"]} == listed
    plan = await get_plan(api, type=FAMILIES[1], omitSubmitted=True)
    assert plan["submitted_count"] == 0
    assert {each["reason"] for each in plan["left_out"]} == {"type"}


async def get_summary(api: Client, **body: Any) -> dict[str, Any]:
    status, answer = await post(api, "/summary", **{"type": FAMILIES[0], "month": MONTH, **body})
    assert status == 200, answer
    return answer["data"]


async def test_summary_agrees_with_the_plan(api: Client, owner: asyncpg.Connection) -> None:
    """Sales on both sides of the limit of each rule that reads no lines, and submitted ones."""
    for changes, reason in RULED:
        if reason not in ("tax", "activity"):
            await sale(api, **changes)
    submitted = await create_submitted_invoice(api, issueDateTime=now())
    await owner.execute(
        "update documents set issue_date = $1 where id = $2",
        datetime.fromisoformat(at()),
        submitted,
    )
    plan, summary = await get_plan(api, omitSubmitted=True), await get_summary(api)
    assert summary["count"] == len(plan["invoices"]) > 5
    assert summary["excludingTax"] == plan["totals"]["excludingTax"]
    assert summary["payableAmount"] == plan["totals"]["payableAmount"]
    left_out = Counter((each["reason"], each["message"]) for each in plan["left_out"])
    assert left_out == {
        (each["reason"], each["message"]): each["count"] for each in summary["left_out"]
    }
    assert {reason for reason, _ in left_out} == {"type", "named", "currency", "amount"}
    for name in ("month", "submitted_count", "refusals"):
        assert summary[name] == plan[name]
    await create_consolidated(api)
    summary = await get_summary(api)
    assert summary["count"] == 0 and summary["payableAmount"] == 0
    assert summary["left_out"][0]["reason"] == "consolidated"


async def test_summary_has_the_refusals_of_the_month(api: Client) -> None:
    await sale(api)
    summary = await get_summary(api, month="2026-01")
    assert summary["count"] == 0 and summary["left_out"] == []
    expected = [("/month", "deadline")]
    assert [(each["path"], each["rule"]) for each in summary["refusals"]] == expected
    status, body = await post(api, "/summary", type=FAMILIES[0], month="2026-13")
    assert status == 422 and body["errors"][0]["path"] == "/month"


async def test_plan_reports_reasons_for_rejection(api: Client, start: StartService) -> None:
    assert [each["rule"] for each in (await get_plan(api, issueDateTime=at()))["refusals"]] == [
        "period"
    ]
    late = await start(CONSOLIDATION_DAYS="0")
    assert [each["rule"] for each in (await get_plan(late))["refusals"]] == ["deadline"]
    plan = await get_plan(api, invoiceIds=[404])
    assert plan["month"] is None and plan["left_out"][0]["reason"] == "unknown"


async def test_record_list_and_export_of_a_consolidated_invoice(api: Client) -> None:
    ids = [await sale(api, code=code) for code in (1, 2)]
    consolidated_id = await create_consolidated(api, code=3)
    found = await read(api, consolidated_id)
    assert (found["invoice_code"], found["type"], found["month"]) == ("3", FAMILIES[0], MONTH)
    assert (
        found["invoice_ids"] == ids and found["invoice_count"] == 2 and found["status"] == "Draft"
    )
    assert found["is_submitted_to_portal"] is False and found["final_adjusted_amount"] == 100
    filters = f"query=ci-00003&status=Draft&type={FAMILIES[0]}&sort=code&issued_from={now(hours=1)}"
    async with api.get(f"{PLACE}?{filters}") as response:
        body = await response.json(loads=exact_json)
    assert body["meta"]["total"] == 1 and len(body["meta"]) == 9
    expected = [{name: member for name, member in found.items() if name != "invoice_ids"}]
    assert body["data"] == expected
    assert (await get_json(api, f"{PLACE}?type={FAMILIES[1]}"))["data"] == []
    async with api.get(PLACE) as response:
        assert (await response.json(loads=exact_json))["data"] == body["data"]
    export = await read(api, consolidated_id, "/export")
    assert export["invoiceCodeWithPrefixAndDigits"] == "CI-00003" and export["buyer"] == PUBLIC
    assert export["consolidatedInvoiceCode"] is None
    assert export["invoiceIds"] == ids
    assert export["month"] == MONTH
    async with api.get(f"{PLACE}/export-all") as response:
        assert "attachment" in response.headers["Content-Disposition"]
        assert await response.json(loads=exact_json) == [export]


async def test_invoice_and_its_export_name_the_consolidated_invoice(api: Client) -> None:
    invoice, other = await sale(api), await create_invoice(api)
    consolidated_id = await create_consolidated(api, code=88)
    assert await get_consolidated_id(api, invoice) == consolidated_id
    assert await get_consolidated_id(api, other) is None
    for each, code in ((invoice, "88"), (other, None)):
        export = await get_json(api, f"/api/invoices/{each}/export")
        assert export["consolidatedInvoiceCode"] == code


async def test_consolidated_sale_cannot_be_submitted_changed_or_deleted(api: Client) -> None:
    invoice = await sale(api)
    await create_consolidated(api)
    status, body = await submit(api, invoice)
    assert status == 400 and body["errors"][0]["code"] == "Consolidated"
    await expect(api, 409, "PUT", f"/api/invoices/{invoice}", json={"isReady": True})
    assert (await delete(api, invoice, "/api/invoices"))[0] == 409


async def test_deleting_releases_the_invoices_and_the_code(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice = await sale(api)
    consolidated_id = await create_consolidated(api, code=5)
    deleted = {"success": True, "message": "Consolidated invoice deleted."}
    assert await delete(api, consolidated_id) == (200, deleted)
    assert await get_consolidated_id(api, invoice) is None
    path = f"{PLACE}/{consolidated_id}"
    assert await request_json(api, "GET", path) == not_found("Consolidated invoice")
    again = await create_consolidated(api, code=5)
    assert await get_consolidated_id(api, invoice) == again
    rows = await owner.fetch("select type from events where type like 'cons%' order by id")
    assert [row["type"].partition(".")[2] for row in rows] == ["created", "deleted", "created"]
    assert (await get_json(api, PLACE))["meta"]["total"] == 1


async def test_deleting_a_submitted_consolidated_invoice_is_rejected(api: Client) -> None:
    await sale(api)
    consolidated_id = await create_consolidated(api)
    await submit_until_valid(api, consolidated_id)
    refusal = (
        "A submitted consolidated invoice cannot be deleted, please cancel first and try again. "
        "A submitted document can only be cancelled within 72 hours after submission"
    )
    refused = {"message": refusal, "code": "already_submitted"}
    assert await delete(api, consolidated_id) == (403, refused)


async def test_cancelling_releases_the_invoices_and_prevents_resubmission(
    api: Client, sandbox: Sandbox
) -> None:
    invoice = await sale(api)
    consolidated_id = await create_consolidated(api)
    await submit_until_valid(api, consolidated_id)
    assert (await cancel_latest(api, consolidated_id, PLACE))[0] == 200
    found = await read(api, consolidated_id)
    assert found["status"] == "Cancelled" and found["invoice_ids"] == [invoice]
    assert await get_consolidated_id(api, invoice) is None
    status, body = await submit(api, consolidated_id, PLACE)
    assert status == 400 and body["errors"][0]["code"] == "Cancelled"
    again = await create_consolidated(api, code=2)
    assert await get_consolidated_id(api, invoice) == again
    assert (await delete(api, consolidated_id))[0] == 200
    assert await get_consolidated_id(api, invoice) == again
    await submit_until_valid(api, again)
    assert len(await sandbox.ledger()) == 2


async def test_code_is_unique_per_year_among_consolidated_invoices(api: Client) -> None:
    first, second = await sale(api), await sale(api)
    await create_consolidated(api, code=9, invoiceIds=[first])
    status, body = await create(api, code=9, invoiceIds=[second])
    assert status == 422
    assert list_rules(body) == [("/code", "unique")]
    assert await get_consolidated_id(api, second) is None


# Notes


def note_body(code: int = 1, **changes: Any) -> dict[str, Any]:
    lines = [item("10", classifications=["004"])]
    facts = {"targetInvoiceType": FAMILIES[0], "adjustmentNoteCode": code, "lineItems": lines}
    return note(**{**facts, **changes})


async def create_note(api: Client, consolidated_id: int, **changes: Any) -> tuple[int, Any]:
    path = f"{PLACE}/{consolidated_id}/adjustment-note"
    return await request_json(api, "POST", path, json=note_body(**changes))


@pytest.mark.parametrize("family, code", [*zip(FAMILIES, ("02", "12"), strict=False)])
async def test_note_adjusts_a_consolidated_invoice(
    api: Client, sandbox: Sandbox, family: str, code: str
) -> None:
    await sale(api, self_billed=code == "12")
    consolidated_id = await create_consolidated(api, type=family)
    await submit_until_valid(api, consolidated_id)
    status, body = await create_note(api, consolidated_id, targetInvoiceType=family)
    assert status == 201, body
    own = body["data"]["id"]
    assert (await submit(api, own, NOTES))[0] == 200
    await until(
        lambda: read(api, consolidated_id), lambda found: found["final_adjusted_amount"] == 40
    )
    assert [each["type"] for each in await sandbox.ledger()][1] == code
    given = await cancel_latest(api, consolidated_id, PLACE)
    assert given[1]["code"] == "ActiveReferencingDocuments"
    export = await get_json(api, f"{NOTES}/{own}/export")
    assert export["targetConsolidatedInvoiceCode"] == "1"


@pytest.mark.parametrize(
    "changes, path",
    [
        ({"targetInvoiceType": "INVOICE"}, "/targetInvoiceType"),
        ({"lineItems": [item("10")]}, "/lineItems/0/classifications"),
        ({"lineItems": [item("51", classifications=["004"])]}, "/lineItems"),
    ],
)
async def test_invalid_note_for_a_consolidated_invoice_is_rejected(
    api: Client, changes: dict[str, Any], path: str
) -> None:
    await sale(api)
    consolidated_id = await create_consolidated(api)
    await submit_until_valid(api, consolidated_id)
    status, body = await create_note(api, consolidated_id, **changes)
    assert status == 422 and body["errors"][0]["path"] == path


async def test_note_needs_a_valid_consolidated_invoice(api: Client) -> None:
    await sale(api)
    refused = {"message": "The invoice has not been submitted.", "code": "not_submitted"}
    assert await create_note(api, await create_consolidated(api)) == (403, refused)
    assert await create_note(api, 404) == not_found("Consolidated invoice")


async def test_update_of_a_note_checks_the_classifications(api: Client) -> None:
    await sale(api)
    consolidated_id = await create_consolidated(api)
    await submit_until_valid(api, consolidated_id)
    own = (await create_note(api, consolidated_id))[1]["data"]["id"]
    body = await expect(api, 422, "PUT", f"{NOTES}/{own}", json={"lineItems": [item("10")]})
    assert list_rules(body) == [("/lineItems/0/classifications", "classification")]
    await expect(api, 200, "PUT", f"{NOTES}/{own}", json={"adjustmentNoteCode": 2})


#: (changes of an invoice, reason why it is excluded), on both sides of the limit of each rule.
RULED: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"buyer": None, "type": "PENDING_FINALIZE_INVOICE"}, None),
    ({"buyer": {}, "type": "PENDING_FINALIZE_INVOICE"}, None),
    ({"type": "SELF_BILLED_INVOICE", "buyer": None, "supplier": PUBLIC}, "type"),
    ({"issueDateTime": at(1, "00:00:00")}, None),
    ({"issueDateTime": at(LAST_DAY.day, "23:59:59.999")}, None),
    ({"issueDateTime": f"{TODAY:%Y-%m}-01T00:00:00+08:00"}, "month"),
    ({"buyer": buyer()}, "named"),
    ({"buyer": {"name": "Aminah"}}, "named"),
    ({"currencyCode": "MYR"}, None),
    ({"currencyCode": "USD", "exchangeRate": 4.2}, "currency"),
    ({"lineItems": [item("10000")]}, None),
    ({"lineItems": [item("10000.01")]}, "amount"),
    ({"lineItems": [item("9999", SERVICE)]}, "amount"),
    ({"lineItems": [item("5", classifications=["025"])]}, "activity"),
    ({"lineItems": [item("5"), item("5", classifications=["022", "025"])]}, "activity"),
    ({"lineItems": [item("5", classifications=["028"])]}, None),
    ({"lineItems": [line(taxDetails=[])]}, "tax"),
    ({"lineItems": [item("5", {"taxType": "02"})]}, "tax"),
    ({"lineItems": [item("5", {"taxType": "E"})]}, "tax"),
    ({"lineItems": [item("5", {"taxType": "E"}, taxExemptionReason="Section 8")]}, None),
]


@pytest.mark.parametrize("changes, reason", RULED)
async def test_eligibility_rule_on_both_sides_of_its_limit(
    api: Client, changes: Any, reason: str | None
) -> None:
    session = await sale(api)
    invoice_id = await sale(api, **changes)
    assert (await reasons(api, session, invoice_id)).get(invoice_id) == reason
    status, body = await create(api, invoiceIds=[session, invoice_id])
    if reason is None:
        assert status == 201, body
    else:
        assert status == 422
        assert list_rules(body) == [("/invoiceIds/1", reason)]
        assert await get_consolidated_id(api, session) is None


async def test_an_excluded_activity_has_its_reason_and_what_to_do(
    api: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute("update companies set msic_code = '45102'")
    car, repair = await sale(api), await sale(api, lineItems=[item("5", classifications=["030"])])
    plan = await get_plan(api)
    assert plan["invoices"] == [repair]
    assert plan["left_out"] == [
        {
            "invoice_id": car,
            "full_code": plan["left_out"][0]["full_code"],
            "reason": "activity",
            "message": "Line 1 counts as the sale of a motor vehicle, since the company has the "
            "MSIC code 45102; that must not be consolidated. Name the buyer and submit the invoice "
            "individually. If the line is something else, give it its own classification instead "
            "of 004 or 022.",
        }
    ]
    status, body = await create(api, invoiceIds=[repair, car])
    assert status == 422 and [each["rule"] for each in body["errors"]] == ["activity"]
    await owner.execute("update companies set consolidation_relaxed_until = $1", TODAY)
    assert (await get_plan(api))["left_out"] == []


async def test_a_sale_changed_to_an_excluded_activity_is_not_consolidated(api: Client) -> None:
    invoice_id, other = await sale(api), await sale(api)
    assert (await get_plan(api))["invoices"] == [invoice_id, other]
    lines = [item("5", classifications=["025"])]
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json={"lineItems": lines})
    assert (await read(api, await create_consolidated(api)))["invoice_ids"] == [other]


@pytest.mark.parametrize(
    "supplier, reason", [(None, None), (PUBLIC, None), ({"type": "FOREIGN_COMPANY"}, "named")]
)
async def test_self_billed_invoice_with_a_named_supplier_is_excluded(
    api: Client, supplier: Any, reason: str | None
) -> None:
    invoice_id = await sale(
        api, True, type="PENDING_FINALIZE_SELF_BILLED_INVOICE", supplier=supplier
    )
    assert await reasons(api, type=FAMILIES[1]) == ({invoice_id: reason} if reason else {})


async def test_individually_submitted_invoice_is_excluded(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    person = {"buyer": buyer(), "issueDateTime": now()}
    accepted, refused = await create_invoice(api, **person), await create_invoice(api, **person)
    await submit(api, accepted)
    await wait_until_status(api, accepted, "Valid")
    await sandbox.fault("submit", "foreign")
    assert (await submit(api, refused))[0] == 400
    # A sale of last month is too old to be submitted, so this month's sales are dated back.
    await owner.execute(
        "update documents set issue_date = $1, buyer = null", datetime.fromisoformat(at())
    )
    assert await reasons(api) == {accepted: "submitted"}
    assert (await cancel_latest(api, accepted))[0] == 200
    assert await reasons(api) == {accepted: "submitted"}
    # The invoice whose submission the portal refused is a draft again.
    await owner.execute("update document_states set status = 'Draft'")
    assert await reasons(api) == {accepted: "submitted"}


async def test_consolidated_or_deleted_invoice_is_excluded(api: Client) -> None:
    first, second, gone = [await sale(api) for _ in range(3)]
    await delete(api, gone, "/api/invoices")
    await create_consolidated(api, invoiceIds=[first])
    assert await reasons(api) == {first: "consolidated"}
    assert await reasons(api, first, gone, second) == {first: "consolidated", gone: "unknown"}


async def test_month_without_eligible_invoices_is_rejected(api: Client) -> None:
    invoice_id, named = await sale(api), await sale(api, buyer=buyer())
    assert (await read(api, await create_consolidated(api)))["invoice_ids"] == [invoice_id]
    status, body = await create(api, code=2)
    assert status == 422
    assert list_rules(body) == [("/month", "empty")]
    assert await get_consolidated_id(api, named) is None


async def test_issue_date_within_the_month_is_rejected(api: Client) -> None:
    await sale(api)
    status, body = await create(api, issueDateTime=at(LAST_DAY.day, "23:59:59.999"))
    assert status == 422 and list_rules(body) == [("/issueDateTime", "period")]
    assert (await create(api, issueDateTime=f"{TODAY:%Y-%m}-01T00:00:00+08:00"))[0] == 201


async def test_a_month_that_has_not_ended_is_rejected(api: Client) -> None:
    await create_invoice(api, buyer={"type": "GENERAL_PUBLIC"}, issueDateTime=now())
    later = (TODAY.replace(day=1) + timedelta(days=40)).isoformat()
    status, body = await create(api, month=f"{TODAY:%Y-%m}", issueDateTime=f"{later}T00:00:00Z")
    assert status == 422 and list_rules(body) == [("/issueDateTime", "period")]


@pytest.mark.parametrize("member", ["month", "invoiceIds"])
async def test_deadline_applies_to_creation_and_submission(
    api: Client, start: StartService, sandbox: Sandbox, member: str
) -> None:
    named = {"invoiceIds": [await sale(api)], "month": MONTH}
    named = {member: named[member]}
    late = await start(CONSOLIDATION_DAYS=str(TODAY.day - 1))
    status, body = await create(late, **named)
    assert status == 422
    assert list_rules(body) == [(f"/{member}", "deadline")]
    in_time = await start(CONSOLIDATION_DAYS=str(TODAY.day))
    consolidated_id = await create_consolidated(in_time, **named)
    status, body = await submit(late, consolidated_id, PLACE)
    assert status == 400
    assert body["errors"][0]["code"] == "ConsolidationDeadline"
    assert not await sandbox.ledger()
    await submit_until_valid(in_time, consolidated_id)


def test_deadline_is_seven_calendar_days_in_the_business_time_zone() -> None:
    period = consolidation.make_period(date(2026, 2, 1), KL, 7)
    assert period.since == datetime(2026, 1, 31, 16, tzinfo=UTC)
    assert period.until == datetime(2026, 2, 28, 16, tzinfo=UTC)
    last = datetime(2026, 3, 7, 23, 59, 59, 999999, tzinfo=KL)
    assert not list(consolidation.find_period_refusals(period, period.until, last))
    (refusal,) = consolidation.find_period_refusals(
        period, period.until, last + timedelta(microseconds=1)
    )
    assert refusal == ("deadline", "The last day to consolidate 2026-02 was 2026-03-07.")


@pytest.mark.parametrize(
    "month, day, relaxed, refused",
    [(2026, 1, None, True), (2025, 31, None, False), (2026, 5, 5, False), (2026, 6, 5, True)],
)
def test_large_sales_are_excluded_since_2026_unless_relaxed(
    month: int, day: int, relaxed: int | None, refused: bool
) -> None:
    first = date(2026, 1, 1) if month == 2026 else date(2025, 12, 1)
    relaxed_until = date(2026, 1, relaxed) if relaxed else None
    terms = ConsolidationTerms(
        FAMILIES[0], consolidation.make_period(first, KL, 7), KL, relaxed_until
    )
    noon = datetime.combine(first.replace(day=day), time(12), KL)
    taken, left = consolidation.split_candidates([candidate(issue_date=noon)], terms)
    assert [each["reason"] for each in left] == ["amount"] * refused and len(taken) == (not refused)


def candidate(**changes: Any) -> dict[str, Any]:
    facts = {
        "id": 1,
        "code": 1,
        "number": "INV-00001",
        "type": "INVOICE",
        "status": "Draft",
        "currency_code": "MYR",
        "total_amount": Decimal("10000.01"),
        "consolidated_invoice_id": None,
        "is_named": False,
        "was_accepted": False,
    }
    return {**facts, **changes}


async def test_plan_needs_fewer_members_than_a_creation(api: Client) -> None:
    status, answer = await post(api, month=MONTH)
    assert (status, set(list_paths(answer))) == (422, {"/type", "/code", "/issueDateTime"})
    assert (await get_plan(api))["invoices"] == []


# Lines and totals


async def test_code_gap_or_other_taxes_start_a_new_line(api: Client) -> None:
    both = [item("10", SERVICE, id="1"), item("20", id="2")]
    one, three, five, six = [item("10", SERVICE)], [item("5")], [item("7")], [item("8", SERVICE)]
    for code, lines in ((1, one), (2, both), (3, three), (5, five), (6, six)):
        await sale(api, code=code, lineItems=lines)
    lines = (await get_plan(api))["lines"]
    drawn = [
        (each["description"], each["unit"]["price"], each["taxDetails"][0]["taxType"])
        for each in lines
    ]
    assert drawn == [
        ("Receipts INV-00001 - INV-00002", 20, "02"),
        ("Receipts INV-00002 - INV-00003", 25, "06"),
        ("Receipt INV-00005", 7, "06"),
        ("Receipt INV-00006", 8, "02"),
    ]
    assert all(
        each["classifications"] == ["004"] and each["unit"]["code"] == "C62" for each in lines
    )
    assert [each["id"] for each in lines] == ["1", "2", "3", "4"]


async def test_tax_rounded_per_receipt_is_sent_as_an_amount(api: Client) -> None:
    for code in (1, 2, 3):
        # The tax is 0.0152, rounded three times to 0.02.
        await sale(api, code=code, lineItems=[item("0.19", SERVICE)])
    for code in (5, 6):
        await sale(api, code=code, lineItems=[item("100", SERVICE)])
    rounded, exact = (await get_plan(api))["lines"]
    expected = [{"taxType": "02", "taxRate": {"perUnitAmount": Decimal("0.06"), "unitCount": 1}}]
    assert rounded["taxDetails"] == expected
    assert exact["taxDetails"] == [SERVICE]


TAXES = [
    PLAIN,
    SERVICE,
    {"taxType": "03", "taxRate": {"perUnitAmount": 10}},
    {"taxType": "01", "taxRate": {"percentage": 5.5}},
    {"taxType": "E"},
    {"taxType": "E", "taxRate": {"percentage": 8}},
    {"taxType": "E", "taxRate": {"perUnitAmount": 10}},
]


def random_sale(pick: random.Random) -> dict[str, Any]:
    """Return an invoice body with odd cents, mixed taxes, discounts, a charge and a prepayment."""
    lines = [
        item(
            f"{pick.randint(1, 9999) / 100:.2f}",
            *pick.sample(TAXES, pick.randint(1, 2)),
            count=pick.choice([1, 2, 3, 0.333]),
            taxExemptionReason=pick.choice(["Section 8", "Order 2018"]),
            **({"discount": {"rate": pick.randint(1, 50)}} if pick.random() < 0.3 else {}),
        )
        for _ in range(pick.randint(1, 4))
    ]
    whole = {"charges": [{"amount": pick.randint(1, 99) / 100}]}
    return {
        "lineItems": lines,
        **({"invoiceLevelAllowanceCharge": whole} if pick.random() < 0.4 else {}),
        **({"prepayment": {"amount": 0.01}} if pick.random() < 0.3 else {}),
        **({"payableRoundingAmount": pick.randint(1, 4) / 100} if pick.random() < 0.5 else {}),
    }


@pytest.mark.parametrize("seed", range(4))
async def test_totals_equal_the_sums_of_the_invoices(
    api: Client, sandbox: Sandbox, seed: int
) -> None:
    pick = random.Random(seed)
    codes = sorted(pick.sample(range(1, 60), 40))
    ids = [await sale(api, code=code, **random_sale(pick)) for code in codes]
    plan = await get_plan(api)
    assert plan["invoices"] == ids
    records = [await get_exactly(api, invoice_id) for invoice_id in ids]
    wanted = {
        name: sum(each["legal_monetary_total"][name] for each in records) for name in plan["totals"]
    }
    assert plan["totals"] == wanted
    consolidated_id = await create_consolidated(api)
    assert (await read(api, consolidated_id))["legal_monetary_total"] == wanted
    assert by_tax_type([plan["lines"]]) == by_tax_type([each["line_items"] for each in records])
    await sandbox.settings(strict_totals=True)
    await submit_until_valid(api, consolidated_id)


async def test_the_sum_of_many_roundings_has_no_limits(api: Client) -> None:
    for code in (1, 2):
        await sale(api, code=code, payableRoundingAmount=-0.9)
    consolidated_id = await create_consolidated(api)
    found = await read(api, consolidated_id)
    assert found["payable_rounding_amount"] == Decimal("-1.8")
    exported = await read(api, consolidated_id, "/export")
    for name, value in (("ConsolidatedInvoice", found), ("ConsolidatedInvoiceExport", exported)):
        assert violations({"$ref": f"#/components/schemas/{name}"}, value) == []


async def get_exactly(api: Client, invoice_id: int) -> dict[str, Any]:
    """Return the record of an invoice with decimals."""
    async with api.get(f"/api/invoices/{invoice_id}") as response:
        return await response.json(loads=exact_json)


def by_tax_type(documents: list[list[dict[str, Any]]]) -> dict[str, tuple[Any, Any, Any]]:
    """Return {tax type: (taxable amount, tax, tax at rate)} of the lines of several documents."""
    found: dict[str, tuple[Any, Any, Any]] = {}
    for lines in documents:
        for kind, sums in money.compute_document({"lineItems": lines}).by_tax_type.items():
            taxable, tax, at_rate = found.get(kind, (0, 0, 0))
            found[kind] = (taxable + sums.taxable, tax + sums.tax, at_rate + sums.at_rate)
    return found


# Size limits

ODD_RATE = {"taxType": "02", "taxRate": {"percentage": Decimal("99.12345678901234567890")}}
ODD_UNITS = {
    "perUnitAmount": Decimal("99999999.12345678901234567890"),
    "unitCount": Decimal("3.33333333333333333333"),
}
ODD_AMOUNT = {"taxType": "03", "taxRate": ODD_UNITS}


def source(invoice_id: int, lines: list[dict[str, Any]], adjustments: Any = None) -> dict[str, Any]:
    return {
        "id": invoice_id,
        "line_items": simplejson.dumps(lines),
        "optional_members": f'"invoice_level_allowance_charge": {simplejson.dumps(adjustments)}',
        "prepaid_amount": Decimal(0),
    }


def draw_plan(
    count: int, step: int, lines: list[dict[str, Any]], prefix: str = "INV-"
) -> consolidation.ConsolidationPlan:
    """Return a plan of `count` invoices whose codes are `step` apart."""
    terms = ConsolidationTerms(FAMILIES[0], consolidation.make_period(date(2025, 12, 1), KL, 7), KL)
    invoices = [
        candidate(
            id=invoice_id,
            code=invoice_id * step,
            number=f"{prefix}{invoice_id * step:05}",
            issue_date=terms.period.since,
        )
        for invoice_id in range(1, count + 1)
    ]
    plan = consolidation.ConsolidationPlan(terms)
    plan.take(invoices, [source(invoice_id, lines) for invoice_id in range(1, count + 1)])
    return plan


@pytest.mark.parametrize("reason", ["Short", "é" * 300])
@pytest.mark.parametrize("prefix", ["", "税" * 40, '"' * 40])
@pytest.mark.parametrize("taxes", [[PLAIN], TAXES, [ODD_RATE], [ODD_AMOUNT]])
def test_plan_stays_within_the_portal_size_limit(taxes: Any, prefix: str, reason: str) -> None:
    lines = [item("99999999.99", *taxes, taxExemptionReason=reason, count=9)]
    plan = draw_plan(1500, 2, lines, prefix)
    sent = [
        build_line(index, each, money.compute_line(each), "MYR")
        for index, each in enumerate(plan.body()["lineItems"], 1)
    ]
    assert len(document.encode({"InvoiceLine": sent})) <= consolidation.MAX_BYTES
    assert len(plan.runs) <= 1000
    assert len(plan.ids) + len(plan.left_out) == 1500
    assert plan.ids == list(range(1, len(plan.ids) + 1))
    assert {each["reason"] for each in plan.left_out} == {"full"}


def test_ten_thousand_consecutive_receipts_are_one_line() -> None:
    assert len(draw_plan(10_000, 1, [item("1.05", SERVICE)]).runs) == 1


def test_invoices_beyond_ten_thousand_are_excluded() -> None:
    terms = ConsolidationTerms(FAMILIES[0], consolidation.make_period(date(2025, 12, 1), KL, 7), KL)
    many = [candidate(id=invoice_id, issue_date=terms.period.since) for invoice_id in range(10_001)]
    taken, left = consolidation.split_candidates(many, terms)
    assert len(taken) == 10_000
    assert [(each["invoice_id"], each["reason"]) for each in left] == [(10_000, "full")]


async def test_excess_invoices_go_into_the_next_consolidated_invoice(api: Client) -> None:
    # Gaps throughout: a line for each
    ids = [await sale(api, code=code) for code in range(2, 642, 2)]
    first, second = await create_consolidated(api, code=1), await create_consolidated(api, code=2)
    taken = [
        (await read(api, consolidated_id))["invoice_ids"] for consolidated_id in (first, second)
    ]
    assert all(taken) and taken[0] + taken[1] == ids
    status, body = await create(api, code=3)
    assert status == 422 and body["errors"][0]["rule"] == "empty"
    await submit_until_valid(api, first)
    await submit_until_valid(api, second)


# Races


async def test_concurrent_creations_never_share_an_invoice(
    api: Client, start: StartService, owner: asyncpg.Connection
) -> None:
    other = await start(CONSOLIDATION_DAYS="40")
    for turn in range(50):
        ids = [await sale(api, code=1 + index + 10 * turn) for index in range(3)]
        answers = await asyncio.gather(
            create(api, code=2 * turn + 1), create(other, code=2 * turn + 2)
        )
        assert sorted(status for status, _ in answers) == [201, 422], answers
        (winner,) = [body["data"]["id"] for status, body in answers if status == 201]
        assert {await get_consolidated_id(api, invoice_id) for invoice_id in ids} == {winner}
    taken = [
        row["id"] for row in await owner.fetch("select unnest(invoice_ids) as id from documents")
    ]
    assert len(taken) == len(set(taken)) == 150


async def test_creation_and_submission_of_an_invoice_exclude_each_other(
    api: Client, owner: asyncpg.Connection
) -> None:
    """Only this month's invoices can still be submitted, so the view dates them back."""
    seen: Any = await owner.fetchval("select pg_get_viewdef('consolidation_candidates')")
    older = seen.replace(
        "i.issue_date,", f"i.issue_date - interval '{TODAY.day} days' as issue_date,"
    )
    await owner.execute(
        f"create or replace view consolidation_candidates with (security_invoker = true) as {older}"
    )
    for turn in range(50):
        invoice_id = await sale(
            api, issueDateTime=now(), lineItems=[item("5", classifications=["004"])]
        )
        named = {"invoiceIds": [invoice_id]} if turn % 2 else {}
        (sent, _), (made, body) = await asyncio.gather(
            submit(api, invoice_id), create(api, code=turn + 1, **named)
        )
        assert (sent, made) in {(200, 422), (400, 201)}, body
        assert (await get_consolidated_id(api, invoice_id) is None) == (made == 422)
        if made == 201:
            assert (await delete(api, body["data"]["id"]))[0] == 200
            assert (await delete(api, invoice_id, "/api/invoices"))[0] == 200


async def test_creation_waits_for_a_running_submission(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await sale(api)
    async with owner.transaction():
        await owner.execute("select from documents for update")
        await owner.execute("update document_states set status = 'Submitting'")
        answer = asyncio.create_task(create(api, invoiceIds=[invoice_id]))
        await wait_for_lock(owner)
    status, body = await answer
    assert status == 422 and body["errors"][0]["rule"] == "submitted"


async def test_submission_waits_for_a_running_creation(
    api: Client, owner: asyncpg.Connection
) -> None:
    taker = await create_consolidated(api, invoiceIds=[await sale(api)])
    invoice_id = await create_invoice(api)
    async with owner.transaction():
        await owner.execute(
            "update documents set consolidated_invoice_id = $1 where id = $2", taker, invoice_id
        )
        answer = asyncio.create_task(submit(api, invoice_id))
        await wait_for_lock(owner)
    status, body = await answer
    assert status == 400 and body["errors"][0]["code"] == "Consolidated"


@pytest.mark.parametrize("rival", ["update", "delete"])
async def test_creation_and_change_of_an_invoice_exclude_each_other(
    api: Client, rival: str
) -> None:
    for turn in range(20):
        invoice_id = await sale(api)

        async def change(invoice_id: int = invoice_id) -> int:
            if rival == "delete":
                return (await delete(api, invoice_id, "/api/invoices"))[0]
            async with api.put(f"/api/invoices/{invoice_id}", json={"buyer": buyer()}) as response:
                return response.status

        changed, (made, body) = await asyncio.gather(
            change(), create(api, code=turn + 1, invoiceIds=[invoice_id])
        )
        assert (changed, made) in {(200, 422), (409, 201)}, body


async def test_concurrent_deletions_and_creations_do_not_deadlock(
    api: Client, start: StartService, company: Company
) -> None:
    ids = [await sale(api) for _ in range(20)]
    for turn in range(20):
        first = await create_consolidated(api, code=2 * turn + 1, invoiceIds=ids)
        (gone, _), (made, body) = await asyncio.gather(
            delete(api, first), create(api, code=2 * turn + 2)
        )
        assert gone == 200 and made in (201, 422), body
        if made == 201:
            assert (await delete(api, body["data"]["id"]))[0] == 200
