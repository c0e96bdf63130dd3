"""The specification's tables of bodies, errors, states and limits: a row here for each row there, asked over HTTP."""

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from conftest import make_company, until
from kit import (
    answered,
    buyer,
    cancelled,
    created,
    invoice,
    note,
    now,
    reaches,
    record,
    submitted,
    valid_invoice,
)
from test_adjustment_notes import STRANGER
from test_companies import SETTING
from test_einvoice_requests import asking, put, requested, shown
from test_integrations import QUOTA_HEADERS, user
from test_notes import ONE, cancel, note_record, noted, send
from test_specification import (
    ENDPOINTS,
    an_user,
    ask,
    draft,
    draft_note,
    filled,
    is_a,
    nothing,
    office,  # noqa: F401  (the fixture)
    organization,
    request,
    sent_note,
    valid,
)
from test_validations import TIN, UNKNOWN

HOURS_72 = 72 * 3600


# Bodies: what is required, and what may be left out


class Body(NamedTuple):
    row: str  # the endpoint, and what tells this table from another one of the same endpoint
    given: Callable
    whole: dict  # a body with every member of the table
    required: str = ""
    optional: str = ""
    status: int = 200
    alone: bool = False  # an update: each member may also come alone


PARTIES = {"buyer": buyer(), "supplier": buyer()}
CHOICES = {"submitImmediately": False, "isReady": True}
PARTY = "tin registration contactNumber email address"
NOTE_UPDATE = {name: value for name, value in note().items() if name != "targetInvoiceType"}
COMPANY = {
    "name": "Kopi Empat Sdn. Bhd.",
    "tin_code": "C20880050020",
    "registration_number": "202001234568",
    "registration_type": "BRN",
    "sst_registration_number": "W10-1808-32000059",
    "tourism_tax_registration_number": "123-4567-89012345",
    "business_activity_description": "Coffee shops",
    "msic_code": "56103",
    "country": "MYS",
    "state": "10",
    "zip_code": "40150",
    "city": "Shah Alam",
    "address": "5 Jalan Dahlia",
    "phone": "+60355123456",
    "email": "hello@kopiempat.example",
    "setting": SETTING,
}


def sale(type):
    return invoice(type=type, **PARTIES, **CHOICES)


BODIES = (
    Body("POST /api/invoices INVOICE", nothing, sale("INVOICE"),
         "type code issueDateTime buyer lineItems", "supplier submitImmediately isReady", 201),
    Body("POST /api/invoices SELF_BILLED_INVOICE", nothing, sale("SELF_BILLED_INVOICE"),
         "supplier", "buyer", 201),
    Body("POST /api/invoices PENDING_FINALIZE_INVOICE", nothing, sale("PENDING_FINALIZE_INVOICE"),
         "", "buyer supplier", 201),
    Body("POST /api/invoices PENDING_FINALIZE_SELF_BILLED_INVOICE", nothing, sale("PENDING_FINALIZE_SELF_BILLED_INVOICE"),
         "", "buyer supplier", 201),
    Body("PUT /api/invoices/:id", draft, sale("INVOICE"),
         "", "type code issueDateTime buyer supplier lineItems submitImmediately isReady", alone=True),
    Body("POST /api/invoices/:id/adjustment-note", valid, note(),
         "targetInvoiceType type adjustmentNoteCode adjustmentNoteIssueDate lineItems", "", 201),
    Body("PUT /api/adjustment-notes/:id", draft_note, NOTE_UPDATE,
         "", "type adjustmentNoteCode adjustmentNoteIssueDate lineItems", alone=True),
    Body("POST /api/validation/invoice-code", nothing, {"invoice_code": 7, "invoice_id": 1},
         "invoice_code", "invoice_id"),
    Body("POST /api/validation/adjustment-note-code", nothing,
         {"adjustment_note_code": 7, "adjustment_note_type": "DEBIT_NOTE", "adjustment_note_id": 1},
         "adjustment_note_code", "adjustment_note_id"),  # adjustment_note_type: see REQUIRED_BY_400
    Body("PUT /api/companies", nothing, COMPANY, "", " ".join(COMPANY), alone=True),
    Body("PUT /api/companies setting", nothing, {"setting": SETTING}, " ".join(f"setting.{name}" for name in SETTING)),
    Body("POST /api/einvoice-requests", nothing, asking(), "invoiceCode type name", PARTY, 201),
    Body("PUT /api/einvoice-requests/:id", request, asking(status="Reject"),
         "", f"invoiceCode type name {PARTY} status", alone=True),
    Body("POST /api/integrations/users", nothing, user()),  # see REQUIRED_BY_400
    Body("PUT /api/integrations/users/:id", an_user, {"name": "Siti", "email": "siti@example.com"},
         "", "name email", alone=True),
    Body("PUT /api/integrations/organizations/:id", organization,
         {"name": "HQ", "email": "hq@example.com", "phone": "+604", "members": []},
         "", "name email phone members", alone=True),
)  # fmt: skip


def members_of(which):
    """A parameter for each member of the tables that is required, or optional."""
    return [
        pytest.param(body, name, id=f"{body.row}: {name}")
        for body in BODIES
        for name in getattr(body, which).split()
    ]


def without(body, name):
    """A body without a member; what lies in another has a dot."""
    head, _, rest = name.partition(".")
    if rest:
        return {**body, head: without(body[head], rest)}
    return {key: value for key, value in body.items() if key != head}


async def taken(office, body, sent):
    status, answer = await ask(office, body.row, await body.given(office), json=sent)
    assert status == body.status, answer


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.row)
async def test_a_whole_body_is_taken(office, body):
    status, answer = await ask(office, body.row, await body.given(office), json=body.whole)
    assert status in (200, 201), answer


@pytest.mark.parametrize("body, name", members_of("required"))
async def test_a_required_member_that_is_left_out_is_a_422_that_names_it(office, body, name):
    status, answer = await ask(
        office, body.row, await body.given(office), json=without(body.whole, name)
    )
    assert status == 422, answer
    assert [(fault["path"], fault["rule"]) for fault in answer["errors"]] == [
        (f"/{name.replace('.', '/')}", "required")
    ]


@pytest.mark.parametrize("body, name", members_of("optional"))
async def test_an_optional_member_may_be_left_out(office, body, name):
    await taken(office, body, without(body.whole, name))


@pytest.mark.parametrize(
    "body, name", [row for row in members_of("optional") if row.values[0].alone]
)
async def test_a_member_of_an_update_may_come_alone(office, body, name):
    await taken(office, body, {name: body.whole[name]})


#: (endpoint, body, the member left out, the message of the 400); the surfaces whose refusals are
#: specified as 400
REQUIRED_BY_400 = (
    ("POST /api/validation/tin", TIN, "registration_type", "Invalid registration type"),
    (
        "POST /api/validation/tin",
        TIN,
        "tin",
        "TIN is required when only registration number is provided",
    ),
    (
        "POST /api/validation/adjustment-note-code",
        {"adjustment_note_code": 7, "adjustment_note_type": "DEBIT_NOTE"},
        "adjustment_note_type",
        "Invalid adjustment note type",
    ),
    ("POST /api/integrations/users", user(), "name", "name is required."),
    ("POST /api/integrations/users", user(), "email", "email is required."),
    ("POST /api/integrations/users", user(), "role", "role is required."),
)


@pytest.mark.parametrize(
    "row, whole, name, message", REQUIRED_BY_400, ids=lambda value: str(value)[:60]
)
async def test_a_member_that_is_missed_by_a_400(office, row, whole, name, message):
    status, answer = await ask(office, row, {}, json=without(whole, name))
    assert (status, answer["message"]) == (400, message)


async def test_a_tin_that_is_known_is_enough_without_its_registration_number(office):
    for body in (TIN, without(TIN, "registration_number")):
        status, answer = await ask(office, "POST /api/validation/tin", {}, json=body)
        assert (status, answer["data"]) == (200, {"valid": True})


NOTE_TYPES = "CREDIT_NOTE DEBIT_NOTE REFUND_NOTE"
REGISTRATIONS = "NRIC BRN PASSPORT ARMY"
INVOICE_TYPES = (
    "INVOICE SELF_BILLED_INVOICE PENDING_FINALIZE_INVOICE PENDING_FINALIZE_SELF_BILLED_INVOICE"
)
#: (endpoint, arrangement, the rest of the body, member, the values it may have, the status of
#: another one)
VALUES = (
    ("PUT /api/invoices/:id", draft, PARTIES, "type", INVOICE_TYPES, 422),
    ("PUT /api/adjustment-notes/:id", draft_note, {}, "type", NOTE_TYPES, 422),
    ("POST /api/validation/adjustment-note-code", nothing, {"adjustment_note_code": 7}, "adjustment_note_type", NOTE_TYPES, 400),
    ("PUT /api/companies", nothing, {}, "registration_type", REGISTRATIONS, 422),
    ("PUT /api/einvoice-requests/:id", request, {}, "status", "Pending Approve Reject", 422),
    ("PUT /api/einvoice-requests/:id", request, {}, "registration.type", REGISTRATIONS, 422),
    ("PUT /api/invoices/:id", draft, {}, "issueDateTime", "2026-01-31T09:30:00Z 2026-01-31T09:30:00.5+08:00 2026-01-31T09:30:00", 422),
    ("PUT /api/adjustment-notes/:id", draft_note, {}, "adjustmentNoteIssueDate", "2026-01-31T09:30:00Z 2026-01-31T09:30:00", 422),
)  # fmt: skip


def nested(name, value):
    head, _, rest = name.partition(".")
    return {head: nested(rest, value) if rest else value}


@pytest.mark.parametrize(
    "row, given, rest, name, values, refused", VALUES, ids=[f"{row[0]}: {row[3]}" for row in VALUES]
)
async def test_a_member_has_one_of_its_values(office, row, given, rest, name, values, refused):
    ids = await given(office)
    for value, expected in [(value, 200) for value in values.split()] + [("another", refused)]:
        status, answer = await ask(office, row, ids, json={**rest, **nested(name, value)})
        assert status == expected, (value, answer)


async def test_submit_immediately_submits_right_after_creation_and_is_ready_marks_the_invoice(
    office,
):
    for members in ({}, {"submitImmediately": True}, {"isReady": True}):
        found = await record(office.api, await created(office.api, **members))
        assert found["is_submitted_to_portal"] == ("submitImmediately" in members)
        assert found["is_ready"] == ("isReady" in members)


# Authentication


WITHIN = [row.row for row in ENDPOINTS if "/integrations/" not in row.row]
INTEGRATIONS = [row.row for row in ENDPOINTS if "/integrations/" in row.row]
REQUIRED = {"message": "API key is required"}
INVALID = {"message": "Invalid API key"}
UNAUTHORIZED = {"error": "Unauthorized: Valid API key required"}
EXPIRED = "update {} set expires_at = clock_timestamp() - interval '1 second'"


async def no_key(office):
    del office.api.session.headers["X-API-Key"]
    del office.api.session.headers["X-Portal-Key"]


async def wrong_key(office):
    office.api.session.headers.update(
        {"X-API-Key": "einv_live_wrong", "X-Portal-Key": "einp_live_wrong"}
    )


async def expired_key(office):
    await office.owner.execute(EXPIRED.format("api_keys"))
    await office.owner.execute(EXPIRED.format("integration_keys"))


@pytest.mark.parametrize(
    "spoil, rows, body",
    [
        pytest.param(no_key, WITHIN, REQUIRED, id="header missing"),
        pytest.param(wrong_key, WITHIN, INVALID, id="key incorrect"),
        pytest.param(expired_key, WITHIN, INVALID, id="key expired"),
        pytest.param(no_key, INTEGRATIONS, UNAUTHORIZED, id="integration surface, no key"),
        pytest.param(wrong_key, INTEGRATIONS, UNAUTHORIZED, id="integration surface, invalid key"),
        pytest.param(
            expired_key, INTEGRATIONS, UNAUTHORIZED, id="integration surface, expired key"
        ),
    ],
)
async def test_every_endpoint_requires_a_key(office, spoil, rows, body):
    await spoil(office)
    ids = {"id": 1, "submitted_document_id": 1}
    answers = {
        row: await ask(office, row, ids, json={} if row[:3] != "GET" else None) for row in rows
    }
    assert {row: answer for row, answer in answers.items() if answer != (401, body)} == {}


# The states that errors, rules and limits are about. Each gives the id of an invoice, or of a note


async def never_submitted(office):
    return await created(office.api)


async def being_validated(office):
    await office.sandbox.settings(stuck=True)
    id = await created(office.api)
    assert (await submitted(office.api, id))[0] == 200
    return id


async def found_valid(office):
    return await valid_invoice(office.api)


async def found_invalid(office):
    id = await created(office.api, buyer=STRANGER)
    assert (await submitted(office.api, id))[0] == 200
    await reaches(office.api, id, "Invalid")
    return id


async def already_cancelled(office):
    id = await valid_invoice(office.api)
    assert (await cancelled(office.api, id))[0] == 200
    return id


async def aged(office, seconds):
    """Makes the latest submission that many seconds old."""
    await office.owner.execute(
        """
        update submitted_documents set submitted_at = clock_timestamp() - $1 * interval '1 second'
         where id = (select max(id) from submitted_documents)
        """,
        seconds,
    )


def of_age(make, seconds):
    async def arrange(office):
        id = await make(office)
        await aged(office, seconds)
        return id

    return arrange


async def with_a_valid_note(office):
    await sent_note(office)
    return await office.owner.fetchval("select max(invoice_id) from adjustment_notes")


async def with_a_note_that_only_the_portal_knows(office):
    id = await with_a_valid_note(office)
    await office.owner.execute("update adjustment_notes set status = 'Cancelled'")
    return id


async def over_at_the_portal(office):
    id = await valid_invoice(office.api)
    await office.sandbox.move_clock(HOURS_72 + 60)
    return id


async def portal_away(office):
    id = await valid_invoice(office.api)
    await office.sandbox.fault("state", "drop", times=2)  # aiohttp repeats a PUT once by itself
    return id


async def portal_refuses(office):
    await office.sandbox.fault("submit", "foreign")
    return await created(office.api)


async def portal_unreachable(office):
    await office.sandbox.fault("login", "drop", times=2)
    return await created(office.api)


async def note_never_submitted(office):
    return (await draft_note(office))["id"]


async def note_valid(office):
    return (await sent_note(office))["id"]


async def note_being_validated(office):
    id = await note_never_submitted(office)
    await office.sandbox.settings(stuck=True)
    assert (await send(office.api, id))[0] == 200
    return id


async def note_invalid(office):
    """The register no longer takes the buyer whom it took in the invoice."""
    id = await noted(office.api, await valid_invoice(office.api, buyer=buyer(tin="IG55500012090")))
    await office.sandbox.settings(strict_register=True)
    assert (await send(office.api, id))[0] == 200
    await until(lambda: note_record(office.api, id), lambda found: found["status"] == "Invalid")
    return id


async def note_cancelled(office):
    id = await note_valid(office)
    assert (await cancel(office.api, id))[0] == 200
    return id


async def note_of_a_cancelled_invoice(office):
    id = await note_never_submitted(office)
    assert (await cancelled(office.api, (await note_record(office.api, id))["invoice_id"]))[
        0
    ] == 200
    return id


async def anything(office):
    return 1


#: what an accountant calls it -> (endpoint, body)
OPERATIONS = {
    "DELETE invoice": ("DELETE /api/invoices/:id", None),
    "submit invoice": ("POST /api/invoices/:id/submit-to-portal", {}),
    "cancel invoice document": ("POST /api/invoices/:id/cancel-latest-invoice-submitted", None),
    "create adjustment note": ("POST /api/invoices/:id/adjustment-note", note(lineItems=ONE)),
    "DELETE adjustment note": ("DELETE /api/adjustment-notes/:id", None),
    "submit adjustment note": ("POST /api/adjustment-notes/:id/submit-to-portal", {}),
    "cancel adjustment note document": (
        "POST /api/adjustment-notes/:id/cancel-latest-adjustment-note-submitted",
        None,
    ),
    "validate TIN": ("POST /api/validation/tin", None),
    "validate adjustment note code": ("POST /api/validation/adjustment-note-code", None),
    "PUT company": ("PUT /api/companies", None),
}


async def operate(office, operation, id, sent=None):
    row, body = OPERATIONS[operation]
    return await ask(office, row, {"id": id}, json=body if sent is None else sent)


# Errors


class Refusal(NamedTuple):
    operation: str
    status: int
    message: str
    given: Callable = anything
    sends: dict | None = None
    code: str | None = None


CANCEL_FIRST = (
    "A submitted {} cannot be deleted, please cancel first and try again. "
    "A submitted document can only be cancelled within 72 hours after submission"
)
NO_DOCUMENT = "The invoice does not have any submitted document."
CLOSED = "The latest submitted document of the invoice has already been cancelled/invali."
LATE = (
    "The latest submitted document of the {} has been submitted more than 72 hours ago. "
    "Submitted documents can only be cancelled within 72 hours."
)
PERIOD = "Document status can't be changed after limit time exceeded"
STATE = "Document status has already been rejected or invalid"
REFERENCED = "Document is currently being referenced by another document"
UNSUBMITTED = "The invoice has not been submitted."
UNVALIDATED = (
    "The invoice has been submitted but not yet being validated by the tax authority "
    "or latest submission result status is not valid."
)
ONLY_VALID = "Only invoice with status Valid can have adjustment note submitted to the portal"
NOTE_NONE = "The latest submitted document of the adjustment note not found."
NOTE_CLOSED = (
    "The latest submitted document of the adjustment note has already been cancelled/invalid."
)
TIN_NEEDED = "TIN is required when only registration number is provided"
NEITHER = "TIN or registration number is required"
PERIOD_OVER, IN_STATE, ACTIVE = (
    "OperationPeriodOver",
    "IncorrectState",
    "ActiveReferencingDocuments",
)
OLD, OLD_NOTE = of_age(found_valid, HOURS_72 + 1), of_age(note_valid, HOURS_72 + 1)
SUBMIT_FAILED = "Failed to submit, please try again"

ERRORS = (
    Refusal("DELETE invoice", 403, CANCEL_FIRST.format("invoice"), found_valid),
    Refusal("submit invoice", 400, SUBMIT_FAILED, portal_refuses),
    Refusal("submit invoice", 400, SUBMIT_FAILED, portal_unreachable),
    Refusal("cancel invoice document", 403, NO_DOCUMENT, never_submitted),
    Refusal("cancel invoice document", 403, CLOSED, already_cancelled),
    Refusal("cancel invoice document", 403, CLOSED, found_invalid),
    Refusal("cancel invoice document", 403, LATE.format("invoice"), OLD),
    Refusal("cancel invoice document", 400, PERIOD, over_at_the_portal, code=PERIOD_OVER),
    Refusal("cancel invoice document", 400, STATE, being_validated, code=IN_STATE),
    Refusal("cancel invoice document", 400, REFERENCED, with_a_valid_note, code=ACTIVE),
    Refusal(
        "cancel invoice document",
        400,
        REFERENCED,
        with_a_note_that_only_the_portal_knows,
        code=ACTIVE,
    ),
    Refusal(
        "cancel invoice document",
        400,
        "Cancellation failed, please try again.",
        portal_away,
        code="outcome_unknown",
    ),
    Refusal("create adjustment note", 403, UNSUBMITTED, never_submitted),
    Refusal("create adjustment note", 403, UNVALIDATED, being_validated),
    Refusal("create adjustment note", 403, UNVALIDATED, found_invalid),
    Refusal("DELETE adjustment note", 403, CANCEL_FIRST.format("adjustment note"), note_valid),
    Refusal("submit adjustment note", 400, ONLY_VALID, note_of_a_cancelled_invoice),
    Refusal("cancel adjustment note document", 403, NOTE_NONE, note_never_submitted),
    Refusal("cancel adjustment note document", 403, NOTE_CLOSED, note_cancelled),
    Refusal("cancel adjustment note document", 403, NOTE_CLOSED, note_invalid),
    Refusal("cancel adjustment note document", 403, LATE.format("adjustment note"), OLD_NOTE),
    Refusal(
        "validate TIN", 400, "Invalid registration type", sends={**TIN, "registration_type": "IC"}
    ),
    Refusal(
        "validate TIN",
        400,
        TIN_NEEDED,
        sends={"registration_type": "BRN", "registration_number": "202101033579"},
    ),
    Refusal("validate TIN", 400, NEITHER, sends={"registration_type": "BRN"}),
    Refusal(
        "validate adjustment note code",
        400,
        "Invalid adjustment note type",
        sends={"adjustment_note_code": 1, "adjustment_note_type": "NOTE"},
    ),
)


def names(refusal):
    """The row as the specification has it, and what was arranged where it stands for several cases."""
    return f"{refusal.operation} | {refusal.status} | {refusal.message} | {refusal.given.__name__}"


@pytest.mark.parametrize("refusal", ERRORS, ids=names)
async def test_a_refusal_has_its_status_and_message(office, refusal):
    id = await refusal.given(office)
    status, body = await operate(office, refusal.operation, id, refusal.sends)
    assert (status, body["message"], body.get("code")) == (
        refusal.status,
        refusal.message,
        refusal.code,
    )
    if refusal.operation.startswith("validate"):
        assert body == {"success": False, "message": refusal.message}
    elif refusal.operation == "submit invoice":
        assert body["errors"] and all(
            {"code", "path", "message"} <= set(each) for each in body["errors"]
        )


async def test_validate_tin_404_forwards_the_portals_error_body(office):
    status, body = await operate(office, "validate TIN", 1, UNKNOWN)
    assert (status, list(body)) == (404, ["error"])
    kinds = {"type": "string", "title": "string", "status": "number", "traceId": "string"}
    assert {
        name for name, kind in kinds.items() if not is_a(body["error"].get(name), kind)
    } == set()
    assert re.match("https?://", body["error"]["type"]) and body["error"]["status"] == 404


async def test_put_company_422_when_the_setting_is_sent_without_all_required_fields(office):
    status, body = await operate(office, "PUT company", 1, {"setting": {"INVOICE_PREFIX": "INV-"}})
    missing = {fault["path"] for fault in body["errors"]}
    assert (status, missing) == (
        422,
        {f"/setting/{name}" for name in SETTING if name != "INVOICE_PREFIX"},
    )


async def test_integration_surface_429_says_after_how_many_seconds_to_retry(office):
    slow = await office.start(office.company, INTEGRATION_REQUESTS_PER_MINUTE="1")
    headers = {"X-Portal-Key": office.account.key}
    answers = [
        await answered(slow, "GET", "/api/integrations/users", headers=headers) for _ in range(3)
    ]
    # A minute may have ended between two of them
    refusals = [body for status, body in answers if status == 429]
    assert refusals and {status for status, _ in answers} <= {200, 429}
    assert set(refusals[0]) == {"error", "message", "details"}
    assert is_a(refusals[0]["details"]["retry_after"], "number")


# States


#: (operation, the state it meets, status of the answer, status of the invoice or note afterwards;
#: None: it is gone)
STATES = (
    ("DELETE invoice", never_submitted, 200, None),
    ("DELETE invoice", being_validated, 403, "Submitted"),
    ("DELETE invoice", found_valid, 403, "Valid"),
    ("DELETE invoice", found_invalid, 200, None),
    ("DELETE invoice", already_cancelled, 200, None),
    ("cancel invoice document", never_submitted, 403, "Draft"),
    ("cancel invoice document", being_validated, 400, "Submitted"),
    ("cancel invoice document", found_valid, 200, "Cancelled"),
    ("cancel invoice document", found_invalid, 403, "Invalid"),
    ("cancel invoice document", already_cancelled, 403, "Cancelled"),
    ("cancel invoice document", OLD, 403, "Valid"),
    ("create adjustment note", never_submitted, 403, "Draft"),
    ("create adjustment note", being_validated, 403, "Submitted"),
    ("create adjustment note", found_valid, 201, "Valid"),
    ("create adjustment note", found_invalid, 403, "Invalid"),
    ("create adjustment note", already_cancelled, 403, "Cancelled"),
    ("DELETE adjustment note", note_never_submitted, 200, None),
    ("DELETE adjustment note", note_being_validated, 403, "Submitted"),
    ("DELETE adjustment note", note_valid, 403, "Valid"),
    ("DELETE adjustment note", note_invalid, 200, None),
    ("DELETE adjustment note", note_cancelled, 200, None),
    ("cancel adjustment note document", note_never_submitted, 403, "Draft"),
    ("cancel adjustment note document", note_being_validated, 400, "Submitted"),
    ("cancel adjustment note document", note_valid, 200, "Cancelled"),
    ("cancel adjustment note document", note_invalid, 403, "Invalid"),
    ("cancel adjustment note document", note_cancelled, 403, "Cancelled"),
    ("cancel adjustment note document", OLD_NOTE, 403, "Valid"),
)


@pytest.mark.parametrize(
    "operation, given, expected, afterwards",
    STATES,
    ids=[f"{row[0]} | {row[1].__name__} | {row[2]}" for row in STATES],
)
async def test_a_state_allows_or_refuses_an_operation(
    office, operation, given, expected, afterwards
):
    id = await given(office)
    status, body = await operate(office, operation, id)
    assert status == expected, body
    place = "adjustment-notes" if "note" in given.__name__ or given is OLD_NOTE else "invoices"
    status, found = await answered(office.api, "GET", f"/api/{place}/{id}")
    assert (status, found.get("status")) == ((200, afterwards) if afterwards else (404, None))


#: (the states before, the status that is put, the state afterwards)
REQUEST_MOVES = (
    ((), None, "Pending"),
    ((), "Approve", "Approve"),
    ((), "Reject", "Reject"),
    ((), "Pending", "Pending"),
    (("Approve",), "Pending", "Pending"),
    (("Reject",), "Pending", "Pending"),
    (("Approve",), "Reject", "Reject"),
    (("Reject",), "Approve", "Approve"),
)


@pytest.mark.parametrize("before, wanted, afterwards", REQUEST_MOVES)
async def test_an_einvoice_request_moves(office, before, wanted, afterwards):
    id = await requested(office.api)
    for status in [*before, *filter(None, [wanted])]:
        assert (await put(office.api, id, status=status))[0] == 200
    assert (await shown(office.api, id))["status"] == afterwards


# Limits


#: (limit, what it meets, operation, status)
WINDOWS = (
    (
        "Cancellation window: an invoice within 72 hours",
        of_age(found_valid, HOURS_72 - 10),
        "cancel invoice document",
        200,
    ),
    ("Cancellation window: an invoice after 72 hours", OLD, "cancel invoice document", 403),
    (
        "Cancellation window: a note within 72 hours",
        of_age(note_valid, HOURS_72 - 10),
        "cancel adjustment note document",
        200,
    ),
    (
        "Cancellation window: a note after 72 hours",
        OLD_NOTE,
        "cancel adjustment note document",
        403,
    ),
    ("Deletion: an invoice once submitted", found_valid, "DELETE invoice", 403),
    ("Deletion: an invoice after it is cancelled", already_cancelled, "DELETE invoice", 200),
    ("Deletion: a note once submitted", note_valid, "DELETE adjustment note", 403),
    ("Deletion: a note after it is cancelled", note_cancelled, "DELETE adjustment note", 200),
)


@pytest.mark.parametrize(
    "limit, given, operation, expected", WINDOWS, ids=[row[0] for row in WINDOWS]
)
async def test_a_limit_has_two_sides(office, limit, given, operation, expected):
    status, body = await operate(office, operation, await given(office))
    assert status == expected, body


THIS_YEAR, LAST_YEAR = "2026-01-31T09:30:00Z", "2025-01-31T09:30:00Z"
#: (what the code 5 of an invoice of this year is held against, the body of another one, status)
INVOICE_CODES = (
    ("the same code in the same year", {"code": 5, "issueDateTime": THIS_YEAR}, 422),
    ("another code in the same year", {"code": 6, "issueDateTime": THIS_YEAR}, 200),
    ("the same code in another year", {"code": 5, "issueDateTime": LAST_YEAR}, 200),
    (
        "the same code of another type",
        {"code": 5, "issueDateTime": THIS_YEAR, "type": "SELF_BILLED_INVOICE", **PARTIES},
        422,
    ),
)
NOTE_CODES = (
    ("the same code of the same type", {"adjustmentNoteCode": 5, "type": "CREDIT_NOTE"}, 422),
    ("another code of the same type", {"adjustmentNoteCode": 6, "type": "CREDIT_NOTE"}, 200),
    ("the same code of another type", {"adjustmentNoteCode": 5, "type": "DEBIT_NOTE"}, 200),
    ("the same code of the same type in another year",
     {"adjustmentNoteCode": 5, "type": "CREDIT_NOTE", "adjustmentNoteIssueDate": LAST_YEAR}, 422),
)  # fmt: skip


@pytest.mark.parametrize(
    "changes, expected", [row[1:] for row in INVOICE_CODES], ids=[row[0] for row in INVOICE_CODES]
)
async def test_invoice_code_uniqueness_at_create_and_at_update(office, changes, expected):
    await created(office.api, code=5, issueDateTime=THIS_YEAR)
    other = await created(office.api, code=7, issueDateTime="2020-06-01T00:00:00Z")
    status, body = await answered(office.api, "PUT", f"/api/invoices/{other}", json=changes)
    assert status == expected, body
    await answered(office.api, "DELETE", f"/api/invoices/{other}")
    status, body = await answered(office.api, "POST", "/api/invoices", json=invoice(**changes))
    assert status == (expected if expected == 422 else 201), body


@pytest.mark.parametrize(
    "changes, expected", [row[1:] for row in NOTE_CODES], ids=[row[0] for row in NOTE_CODES]
)
async def test_adjustment_note_code_uniqueness_at_create_and_at_update(office, changes, expected):
    target = await valid_invoice(office.api)
    await noted(office.api, target, adjustmentNoteCode=5, adjustmentNoteIssueDate=THIS_YEAR)
    other = await noted(office.api, target, adjustmentNoteCode=7, type="REFUND_NOTE")
    status, body = await answered(office.api, "PUT", f"/api/adjustment-notes/{other}", json=changes)
    assert status == expected, body
    await answered(office.api, "DELETE", f"/api/adjustment-notes/{other}")
    status, body = await answered(
        office.api, "POST", f"/api/invoices/{target}/adjustment-note", json=note(**changes)
    )
    assert status == (expected if expected == 422 else 201), body


async def code_is_free(office, row, **body):
    """`data.success` of a validation helper."""
    status, answer = await ask(office, row, {}, json=body)
    assert status == 200, answer
    return answer["data"]["success"]


async def test_the_invoice_code_helper_excludes_the_invoice_that_is_named(office):
    row, id = (
        "POST /api/validation/invoice-code",
        await created(office.api, code=5, issueDateTime=now()),
    )
    assert await code_is_free(office, row, invoice_code=6)
    assert not await code_is_free(office, row, invoice_code=5)
    assert await code_is_free(office, row, invoice_code=5, invoice_id=id)


async def test_the_note_code_helper_excludes_the_note_that_is_named_and_looks_at_its_type_alone(
    office,
):
    row = "POST /api/validation/adjustment-note-code"
    id = await noted(office.api, await valid_invoice(office.api), adjustmentNoteCode=5)
    credit = {"adjustment_note_code": 5, "adjustment_note_type": "CREDIT_NOTE"}
    assert not await code_is_free(office, row, **credit)
    assert await code_is_free(office, row, **{**credit, "adjustment_note_type": "DEBIT_NOTE"})
    assert await code_is_free(office, row, **credit, adjustment_note_id=id)


async def some_invoices(office):
    for _ in range(11):
        await created(office.api)


async def some_notes(office):
    target = await valid_invoice(office.api)
    for _ in range(11):
        await noted(office.api, target)


async def some_requests(office):
    for _ in range(11):
        await requested(office.api)


async def some_users(office):
    for number in range(11):
        body = user(email=f"{number}@example.com")
        assert (await answered(office.api, "POST", "/api/integrations/users", json=body))[0] == 201


async def some_organizations(office):
    for _ in range(11):
        await organization(office)


#: (a list endpoint, how it comes to have eleven records)
LISTS = (
    ("/api/invoices", some_invoices),
    ("/api/adjustment-notes", some_notes),
    ("/api/einvoice-requests", some_requests),
    ("/api/integrations/users", some_users),
    ("/api/integrations/organizations", some_organizations),
)


@pytest.mark.parametrize("path, fill", LISTS)
async def test_default_page_size_is_10_and_default_page_1(office, path, fill):
    await fill(office)
    for query, page, size, rows in (
        ("", 1, 10, 10),
        ("?page=2", 2, 10, 1),
        ("?per_page=11", 1, 11, 11),
    ):
        status, body = await answered(office.api, "GET", f"{path}{query}")
        assert (status, body["meta"]["total"], len(body["data"])) == (200, 11, rows), query
        assert (body["meta"]["current_page"], body["meta"]["per_page"]) == (page, size), query


@pytest.mark.parametrize("path, fill", LISTS[:2])
async def test_exports_hold_the_whole_dataset_of_the_company_without_pagination(office, path, fill):
    await fill(office)
    stranger = await office.start(await make_company(office.environment))
    for api, rows in ((office.api, 11), (stranger, 0)):
        status, body = await answered(api, "GET", f"{path}/export-all?per_page=10")
        assert (status, len(body)) == (200, rows)


@pytest.mark.parametrize("row", INTEGRATIONS)
async def test_every_integration_answer_has_the_rate_limit_headers(office, row):
    method, path = row.split()
    for headers in ({}, {"X-Portal-Key": "wrong"}):
        async with office.api.request(
            method, filled(path, {"id": "x"}), headers=headers
        ) as response:
            assert [
                name for name in QUOTA_HEADERS if not response.headers.get(name, "").isdigit()
            ] == []
