"""The bodies, errors, states and limits of the specification, one row per row of its tables."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from service.documents import states
from service.errors import CODES
from tests.api.test_companies import COMPANY, SETTING
from tests.api.test_einvoice_requests import create_request, get_request, put, request_body
from tests.api.test_integrations import QUOTA_HEADERS, create_user, user
from tests.api.test_notes import ONE, cancel, create_note, get_note, send
from tests.api.test_specification import (
    ENDPOINTS,
    a_user,
    ask,
    draft,
    draft_note,
    fill_path,
    nothing,
    organization,
    request,
    sent_note,
    valid,
)
from tests.api.test_validations import TIN
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_invoice, wait_for_status
from tests.api_requests import cancel_latest, expect, list_rules, request_json, submit
from tests.conftest import make_company, until
from tests.fixtures_specification import Context
from tests.harness.bodies import CODES as NUMBERS
from tests.harness.bodies import STRANGER, buyer, invoice, note

HOURS_72 = 72 * 3600
#: Creates a record in a state, and returns its id.
Arrangement = Callable[[Context], Awaitable[int]]


# Required and optional members of bodies


class Body(NamedTuple):
    row: str  # the endpoint, and the name of the table if the endpoint has several
    given: Callable[[Context], Awaitable[dict[str, Any]]]
    whole: dict[str, Any]  # a body with every member of the table
    required: str = ""
    optional: str = ""
    status: int = 200
    alone: bool = False  # an update, in which each member may be the only one


PARTIES = {"buyer": buyer(), "supplier": buyer()}
INVOICE_CODE = "POST /api/validation/invoice-code"
NOTE_CODE = "POST /api/validation/adjustment-note-code"
DEBIT = {"adjustment_note_code": 7, "adjustment_note_type": "DEBIT_NOTE"}
PARTY = "tin registration contactNumber email address"
MAILBOX = {"name": "Siti", "email": "siti@example.com"}
NOTE_UPDATE = {name: value for name, value in note().items() if name != "targetInvoiceType"}


def sale(invoice_type: str) -> dict[str, Any]:
    return invoice(type=invoice_type, **PARTIES, submitImmediately=False, isReady=True)


def update(row: str, given: Callable[..., Awaitable[dict[str, Any]]], whole: Any) -> Body:
    """Return the body of an update, in which each member may be the only one."""
    return Body(row, given, whole, optional=" ".join(whole), alone=True)


BODIES = (
    Body(
        "POST /api/invoices INVOICE",
        nothing,
        sale("INVOICE"),
        "type code issueDateTime buyer lineItems",
        "supplier submitImmediately isReady",
        201,
    ),
    *(
        Body(f"POST /api/invoices {kind}", nothing, sale(kind), required, optional, 201)
        for kind, required, optional in (
            ("SELF_BILLED_INVOICE", "supplier", "buyer"),
            ("PENDING_FINALIZE_INVOICE", "", "buyer supplier"),
            ("PENDING_FINALIZE_SELF_BILLED_INVOICE", "", "buyer supplier"),
        )
    ),
    update("PUT /api/invoices/:id", draft, sale("INVOICE")),
    Body(
        "POST /api/invoices/:id/adjustment-note",
        valid,
        note(),
        "targetInvoiceType type adjustmentNoteCode adjustmentNoteIssueDate lineItems",
        status=201,
    ),
    update("PUT /api/adjustment-notes/:id", draft_note, NOTE_UPDATE),
    Body(INVOICE_CODE, nothing, {"invoice_code": 7, "invoice_id": 1}, "invoice_code", "invoice_id"),
    Body(
        NOTE_CODE,
        nothing,
        {**DEBIT, "adjustment_note_id": 1},
        "adjustment_note_code",
        "adjustment_note_id",
    ),
    update("PUT /api/companies", nothing, COMPANY),
    Body(
        "PUT /api/companies setting",
        nothing,
        {"setting": SETTING},
        " ".join(f"setting.{name}" for name in SETTING),
    ),
    Body(
        "POST /api/einvoice-requests", nothing, request_body(), "invoiceCode type name", PARTY, 201
    ),
    update("PUT /api/einvoice-requests/:id", request, request_body(status="Reject")),
    Body("POST /api/integrations/users", nothing, user()),
    update("PUT /api/integrations/users/:id", a_user, MAILBOX),
    update(
        "PUT /api/integrations/organizations/:id",
        organization,
        {**MAILBOX, "phone": "+604", "members": []},
    ),
)


def members_of(which: str) -> list[Any]:
    """Return a test parameter for each `required` or `optional` member of the tables."""
    return [
        pytest.param(body, name, id=f"{body.row}: {name}")
        for body in BODIES
        for name in getattr(body, which).split()
    ]


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a body without a member, `name` or `member.name`."""
    head, _, rest = name.partition(".")
    if rest:
        return {**body, head: without(body[head], rest)}
    return {key: value for key, value in body.items() if key != head}


def choose_tin(context: Context, sent: dict[str, Any]) -> dict[str, Any]:
    """Return a body whose TIN, if it has one, belongs to no company."""
    free = f"C30{context.company.id:07}0"
    return {**sent, "tin_code": free} if "tin_code" in sent else sent


async def assert_accepted(context: Context, body: Body, sent: dict[str, Any]) -> None:
    ids = await body.given(context)
    status, answer = await ask(context, body.row, ids, json=choose_tin(context, sent))
    assert status == body.status, answer


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.row)
async def test_a_complete_body_is_accepted(context: Context, body: Body) -> None:
    status, answer = await ask(context, body.row, await body.given(context), json=body.whole)
    assert status in (200, 201), answer


@pytest.mark.parametrize("body, name", members_of("required"))
async def test_a_missing_required_member_is_named_by_a_422(
    context: Context, body: Body, name: str
) -> None:
    status, answer = await ask(
        context, body.row, await body.given(context), json=without(body.whole, name)
    )
    assert status == 422, answer
    assert list_rules(answer) == [(f"/{name.replace('.', '/')}", "required")]


@pytest.mark.parametrize("body, name", members_of("optional"))
async def test_an_optional_member_can_be_omitted(context: Context, body: Body, name: str) -> None:
    await assert_accepted(context, body, without(body.whole, name))


@pytest.mark.parametrize(
    "body, name", [row for row in members_of("optional") if row.values[0].alone]
)
async def test_an_update_can_have_a_single_member(context: Context, body: Body, name: str) -> None:
    await assert_accepted(context, body, {name: body.whole[name]})


TIN_NEEDED = "TIN is required when only registration number is provided"
#: Endpoint, body, omitted member and message, where the specification has a 400 instead of a 422.
REQUIRED_BY_400 = (
    ("POST /api/validation/tin", TIN, "registration_type", "Invalid registration type"),
    ("POST /api/validation/tin", TIN, "tin", TIN_NEEDED),
    (NOTE_CODE, DEBIT, "adjustment_note_type", "Invalid adjustment note type"),
    ("POST /api/integrations/users", user(), "name", "name is required."),
    ("POST /api/integrations/users", user(), "email", "email is required."),
    ("POST /api/integrations/users", user(), "role", "role is required."),
)


@pytest.mark.parametrize(
    "row, whole, name, message", REQUIRED_BY_400, ids=lambda value: str(value)[:60]
)
async def test_a_missing_member_is_a_400_where_specified(
    context: Context, row: str, whole: dict[str, Any], name: str, message: str
) -> None:
    status, answer = await ask(context, row, {}, json=without(whole, name))
    assert (status, answer["message"]) == (400, message)


async def test_a_known_tin_is_valid_without_a_registration_number(context: Context) -> None:
    for body in (TIN, without(TIN, "registration_number")):
        status, answer = await ask(context, "POST /api/validation/tin", {}, json=body)
        assert (status, answer["data"]) == (200, {"valid": True})


NOTE_TYPES = "CREDIT_NOTE DEBIT_NOTE REFUND_NOTE"
REGISTRATIONS = "NRIC BRN PASSPORT ARMY"
INVOICE_TYPES = (
    "INVOICE SELF_BILLED_INVOICE PENDING_FINALIZE_INVOICE PENDING_FINALIZE_SELF_BILLED_INVOICE"
)
INSTANTS = "2026-01-31T09:30:00Z 2026-01-31T09:30:00.5+08:00 2026-01-31T09:30:00"
#: Endpoint, arrangement, other members, member, allowed values, status for another value.
VALUES = (
    ("PUT /api/invoices/:id", draft, PARTIES, "type", INVOICE_TYPES, 422),
    ("PUT /api/adjustment-notes/:id", draft_note, {}, "type", NOTE_TYPES, 422),
    (NOTE_CODE, nothing, {"adjustment_note_code": 7}, "adjustment_note_type", NOTE_TYPES, 400),
    ("PUT /api/companies", nothing, {}, "registration_type", REGISTRATIONS, 422),
    ("PUT /api/einvoice-requests/:id", request, {}, "status", "Pending Approve Reject", 422),
    ("PUT /api/einvoice-requests/:id", request, {}, "registration.type", REGISTRATIONS, 422),
    ("PUT /api/invoices/:id", draft, {}, "issueDateTime", INSTANTS, 422),
    ("PUT /api/adjustment-notes/:id", draft_note, {}, "adjustmentNoteIssueDate", INSTANTS, 422),
)


def nested(name: str, value: Any) -> dict[str, Any]:
    head, _, rest = name.partition(".")
    return {head: nested(rest, value) if rest else value}


@pytest.mark.parametrize(
    "row, given, rest, name, values, refused", VALUES, ids=[f"{row[0]}: {row[3]}" for row in VALUES]
)
async def test_a_member_accepts_only_its_specified_values(
    context: Context,
    row: str,
    given: Callable[[Context], Awaitable[dict[str, Any]]],
    rest: Any,
    name: str,
    values: str,
    refused: int,
) -> None:
    ids = await given(context)
    for value, expected in [(value, 200) for value in values.split()] + [("another", refused)]:
        status, answer = await ask(context, row, ids, json={**rest, **nested(name, value)})
        assert status == expected, (value, answer)


async def test_submit_immediately_and_is_ready_apply_at_creation(context: Context) -> None:
    for members in ({}, {"submitImmediately": True}, {"isReady": True}):
        found = await get_invoice(context.api, await create_invoice(context.api, **members))
        assert found["is_submitted_to_portal"] == ("submitImmediately" in members)
        assert found["is_ready"] == ("isReady" in members)


# Authentication


WITHIN = [row.row for row in ENDPOINTS if "/integrations/" not in row.row]
INTEGRATIONS = [row.row for row in ENDPOINTS if "/integrations/" in row.row]
REQUIRED = {"message": "API key is required"}
INVALID = {"message": "Invalid API key"}
UNAUTHORIZED = {"error": "Unauthorized: Valid API key required"}
EXPIRED = """
    update api_keys set expires_at = clock_timestamp() - interval '1 second'
     where company_id = $1 or account_id = $2
"""


async def no_key(context: Context) -> None:
    del context.api.session.headers["X-API-Key"]
    del context.api.session.headers["X-Portal-Key"]


async def wrong_key(context: Context) -> None:
    context.api.session.headers.update(
        {"X-API-Key": "einv_live_wrong", "X-Portal-Key": "einp_live_wrong"}
    )


async def expired_key(context: Context) -> None:
    await context.execute(EXPIRED, context.company.id, context.account.id)


@pytest.mark.parametrize(
    "spoil, rows, body",
    [
        pytest.param(no_key, WITHIN, REQUIRED, id="header missing"),
        pytest.param(wrong_key, WITHIN, INVALID, id="key incorrect"),
        pytest.param(expired_key, WITHIN, INVALID, id="key expired"),
        pytest.param(no_key, INTEGRATIONS, UNAUTHORIZED, id="integration surface, no key"),
        pytest.param(wrong_key, INTEGRATIONS, UNAUTHORIZED, id="integration surface, invalid key"),
        pytest.param(expired_key, INTEGRATIONS, UNAUTHORIZED, id="integration surface, expired"),
    ],
)
async def test_every_endpoint_requires_a_key(
    context: Context,
    spoil: Callable[[Context], Awaitable[None]],
    rows: list[str],
    body: dict[str, str],
) -> None:
    await spoil(context)
    ids = {"id": 1, "submitted_document_id": 1}
    answers = {
        row: await ask(context, row, ids, json={} if row[:3] != "GET" else None) for row in rows
    }
    assert {row: answer for row, answer in answers.items() if answer != (401, body)} == {}


# Arrangements of states. Each returns the id of an invoice or of a note.


async def never_submitted(context: Context) -> int:
    return await create_invoice(context.api)


async def being_validated(context: Context) -> int:
    await context.sandbox.settings(stuck=True)
    invoice_id = await create_invoice(context.api)
    assert (await submit(context.api, invoice_id))[0] == 200
    return invoice_id


async def found_valid(context: Context) -> int:
    return await create_valid_invoice(context.api)


async def found_invalid(context: Context) -> int:
    invoice_id = await create_invoice(context.api, buyer=STRANGER)
    assert (await submit(context.api, invoice_id))[0] == 200
    await wait_for_status(context.api, invoice_id, "Invalid")
    return invoice_id


async def already_cancelled(context: Context) -> int:
    invoice_id = await create_valid_invoice(context.api)
    assert (await cancel_latest(context.api, invoice_id))[0] == 200
    return invoice_id


async def age(context: Context, seconds: float) -> None:
    """Make the latest submission that many seconds old."""
    await context.execute(
        """
        update submitted_documents set submitted_at = clock_timestamp() - $1 * interval '1 second'
         where id = (select max(id) from submitted_documents where company_id = $2)
        """,
        seconds,
        context.company.id,
    )


def of_age(make: Arrangement, seconds: float) -> Arrangement:
    async def arrange(context: Context) -> int:
        record_id = await make(context)
        await age(context, seconds)
        return record_id

    arrange.__name__ = f"{make.__name__}, {seconds} s old"
    return arrange


async def with_a_valid_note(context: Context) -> int:
    note_id = (await sent_note(context))["id"]
    return (await get_note(context.api, note_id))["invoice_id"]


async def with_a_note_that_only_the_portal_knows(context: Context) -> int:
    invoice_id = await with_a_valid_note(context)
    await context.execute(
        "update document_states set status = 'Cancelled'"
        " where kind = 'adjustment_note' and company_id = $1",
        context.company.id,
    )
    return invoice_id


async def over_at_the_portal(context: Context) -> int:
    invoice_id = await create_valid_invoice(context.api)
    await context.sandbox.move_clock(HOURS_72 + 60)
    return invoice_id


async def portal_away(context: Context) -> int:
    invoice_id = await create_valid_invoice(context.api)
    await context.sandbox.fault("state", "drop", times=2)  # aiohttp repeats a PUT once
    return invoice_id


async def portal_refuses(context: Context) -> int:
    await context.sandbox.fault("submit", "foreign")
    return await create_invoice(context.api)


async def portal_unreachable(context: Context) -> int:
    await context.sandbox.fault("login", "drop", times=2)
    return await create_invoice(context.api)


async def note_never_submitted(context: Context) -> int:
    return (await draft_note(context))["id"]


async def note_valid(context: Context) -> int:
    return (await sent_note(context))["id"]


async def note_being_validated(context: Context) -> int:
    invoice_id = await note_never_submitted(context)
    await context.sandbox.settings(stuck=True)
    assert (await send(context.api, invoice_id))[0] == 200
    return invoice_id


async def note_invalid(context: Context) -> int:
    """The buyer was accepted in the invoice, but is no longer in the register."""
    target = await create_valid_invoice(context.api, buyer=buyer(tin="IG55500012090"))
    invoice_id = await create_note(context.api, target)
    await context.sandbox.settings(strict_register=True)
    assert (await send(context.api, invoice_id))[0] == 200
    await until(
        lambda: get_note(context.api, invoice_id), lambda found: found["status"] == "Invalid"
    )
    return invoice_id


async def note_cancelled(context: Context) -> int:
    invoice_id = await note_valid(context)
    assert (await cancel(context.api, invoice_id))[0] == 200
    return invoice_id


async def note_of_a_cancelled_invoice(context: Context) -> int:
    invoice_id = await note_never_submitted(context)
    target = (await get_note(context.api, invoice_id))["invoice_id"]
    assert (await cancel_latest(context.api, target))[0] == 200
    return invoice_id


async def any_id(context: Context) -> int:
    return 1


#: Arrangements that change the sandbox, for all taxpayers.
DISTURBING = {
    being_validated,
    over_at_the_portal,
    portal_away,
    portal_refuses,
    portal_unreachable,
    note_being_validated,
    note_invalid,
}


def make_parameter(given: Arrangement, name: str, *values: Any) -> Any:
    """Return a test parameter, with a service of its own if its arrangement needs one."""
    marks = pytest.mark.own_service if given in DISTURBING else ()
    return pytest.param(*values, id=name, marks=marks)


#: The operation as the specification names it: endpoint and body.
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
    "validate adjustment note code": (NOTE_CODE, None),
    "PUT company": ("PUT /api/companies", None),
}


async def operate(
    context: Context, operation: str, record_id: int, sent: dict[str, Any] | None = None
) -> tuple[int, Any]:
    row, body = OPERATIONS[operation]
    return await ask(context, row, {"id": record_id}, json=body if sent is None else sent)


# Errors


class Refusal(NamedTuple):
    operation: str
    status: int
    message: str
    given: Arrangement = any_id
    sends: dict[str, Any] | None = None
    code: str | None = None  # if the specification or docs/api.md has one


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
BRN, WRONG_TYPE = {"registration_type": "BRN"}, "Invalid registration type"
UNCERTAIN = "Cancellation failed, please try again."
PERIOD_OVER, IN_STATE = "OperationPeriodOver", "IncorrectState"
ACTIVE = "ActiveReferencingDocuments"
SENT, UNSENT, NOT_VALID = "already_submitted", "not_submitted", "not_valid"
NOT_READY = "invoice_not_valid"
FINAL, OVER = "already_final", "cancellation_period_over"
NOTE_CANCEL_FIRST = CANCEL_FIRST.format("adjustment note")
NOTE_LATE = LATE.format("adjustment note")
OLD, OLD_NOTE = of_age(found_valid, HOURS_72 + 1), of_age(note_valid, HOURS_72 + 1)
IN_TIME, NOTE_IN_TIME = of_age(found_valid, HOURS_72 - 10), of_age(note_valid, HOURS_72 - 10)
SUBMIT_FAILED = "Failed to submit, please try again"
CANCEL, CANCEL_NOTE = "cancel invoice document", "cancel adjustment note document"

ERRORS = (
    Refusal("DELETE invoice", 403, CANCEL_FIRST.format("invoice"), found_valid, code=SENT),
    Refusal("submit invoice", 400, SUBMIT_FAILED, portal_refuses),
    Refusal("submit invoice", 400, SUBMIT_FAILED, portal_unreachable),
    Refusal(CANCEL, 403, NO_DOCUMENT, never_submitted, code=UNSENT),
    Refusal(CANCEL, 403, CLOSED, already_cancelled, code=FINAL),
    Refusal(CANCEL, 403, CLOSED, found_invalid, code=FINAL),
    Refusal(CANCEL, 403, LATE.format("invoice"), OLD, code=OVER),
    Refusal(CANCEL, 400, PERIOD, over_at_the_portal, code=PERIOD_OVER),
    Refusal(CANCEL, 400, STATE, being_validated, code=IN_STATE),
    Refusal(CANCEL, 400, REFERENCED, with_a_valid_note, code=ACTIVE),
    Refusal(CANCEL, 400, REFERENCED, with_a_note_that_only_the_portal_knows, code=ACTIVE),
    Refusal(CANCEL, 400, UNCERTAIN, portal_away, code="outcome_unknown"),
    Refusal("create adjustment note", 403, UNSUBMITTED, never_submitted, code=UNSENT),
    Refusal("create adjustment note", 403, UNVALIDATED, being_validated, code=NOT_VALID),
    Refusal("create adjustment note", 403, UNVALIDATED, found_invalid, code=NOT_VALID),
    Refusal("create adjustment note", 403, UNVALIDATED, already_cancelled, code=NOT_VALID),
    Refusal("DELETE adjustment note", 403, NOTE_CANCEL_FIRST, note_valid, code=SENT),
    Refusal("submit adjustment note", 400, ONLY_VALID, note_of_a_cancelled_invoice, code=NOT_READY),
    Refusal(CANCEL_NOTE, 403, NOTE_NONE, note_never_submitted, code=UNSENT),
    Refusal(CANCEL_NOTE, 403, NOTE_CLOSED, note_cancelled, code=FINAL),
    Refusal(CANCEL_NOTE, 403, NOTE_CLOSED, note_invalid, code=FINAL),
    Refusal(CANCEL_NOTE, 403, NOTE_LATE, OLD_NOTE, code=OVER),
    Refusal("validate TIN", 400, WRONG_TYPE, sends={**TIN, "registration_type": "IC"}),
    Refusal("validate TIN", 400, TIN_NEEDED, sends={**TIN, **BRN, "tin": " "}),
    Refusal("validate TIN", 400, WRONG_TYPE, sends={**TIN, "registration_type": "brn"}),
    Refusal(
        "validate TIN",
        400,
        "TIN or registration number is required",
        sends={**BRN, "registration_number": "", "tin": ".."},
    ),
    Refusal(
        "validate adjustment note code",
        400,
        "Invalid adjustment note type",
        sends={**DEBIT, "adjustment_note_type": "NOTE"},
        code="validation_failed",
    ),
)


def statuses_of(code: str) -> list[int]:
    """Return the statuses of a code: one of the service's table, or an authority's."""
    if code in states.CANCEL_CODES:
        return [400]
    return [int(status) for status in CODES[code]["status"].split(", ")]


def names(refusal: Refusal) -> str:
    """Return the row of the specification and the arrangement of a refusal."""
    return f"{refusal.operation} | {refusal.status} | {refusal.message} | {refusal.given.__name__}"


@pytest.mark.parametrize(
    "refusal", [make_parameter(each.given, names(each), each) for each in ERRORS]
)
async def test_a_refusal_has_its_status_and_message(context: Context, refusal: Refusal) -> None:
    invoice_id = await refusal.given(context)
    status, body = await operate(context, refusal.operation, invoice_id, refusal.sends)
    assert (status, body["message"]) == (refusal.status, refusal.message)
    assert status in statuses_of(body["code"]) and refusal.code in (None, body["code"])
    if refusal.operation.startswith("validate"):
        assert body["success"] is False
    elif refusal.operation == "submit invoice":
        assert body["errors"]
        assert all({"code", "path", "message"} <= set(each) for each in body["errors"])


# States


#: Operation, states before of an invoice and of a note, status of the response, and status of the
#: record afterwards. None means that the record is deleted.
STATES_OF_BOTH = (
    ("DELETE {}", never_submitted, note_never_submitted, 200, None),
    ("DELETE {}", being_validated, note_being_validated, 403, "Submitted"),
    ("DELETE {}", found_valid, note_valid, 403, "Valid"),
    ("DELETE {}", found_invalid, note_invalid, 200, None),
    ("DELETE {}", already_cancelled, note_cancelled, 200, None),
    ("cancel {} document", never_submitted, note_never_submitted, 403, "Draft"),
    ("cancel {} document", being_validated, note_being_validated, 400, "Submitted"),
    ("cancel {} document", found_valid, note_valid, 200, "Cancelled"),
    ("cancel {} document", found_invalid, note_invalid, 403, "Invalid"),
    ("cancel {} document", already_cancelled, note_cancelled, 403, "Cancelled"),
    ("cancel {} document", IN_TIME, NOTE_IN_TIME, 200, "Cancelled"),
    ("cancel {} document", OLD, OLD_NOTE, 403, "Valid"),
)
#: The same of one kind of record.
STATES = (
    *(
        (operation.format(kind), given, status, afterwards)
        for operation, of_invoice, of_note, status, afterwards in STATES_OF_BOTH
        for kind, given in (("invoice", of_invoice), ("adjustment note", of_note))
    ),
    ("cancel invoice document", over_at_the_portal, 400, "Valid"),
    ("create adjustment note", never_submitted, 403, "Draft"),
    ("create adjustment note", being_validated, 403, "Submitted"),
    ("create adjustment note", found_valid, 201, "Valid"),
    ("create adjustment note", found_invalid, 403, "Invalid"),
    ("create adjustment note", already_cancelled, 403, "Cancelled"),
)


@pytest.mark.parametrize(
    "operation, given, expected, afterwards",
    [make_parameter(row[1], f"{row[0]} | {row[1].__name__} | {row[2]}", *row) for row in STATES],
)
async def test_a_state_allows_or_refuses_an_operation(
    context: Context, operation: str, given: Arrangement, expected: int, afterwards: str | None
) -> None:
    invoice_id = await given(context)
    status, body = await operate(context, operation, invoice_id)
    assert status == expected, body
    place = OPERATIONS[operation][0].split()[1].partition("/:")[0]
    status, found = await request_json(context.api, "GET", f"{place}/{invoice_id}")
    assert (status, found.get("status")) == ((200, afterwards) if afterwards else (404, None))


#: Earlier statuses, the requested status, and the status afterwards.
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
async def test_an_einvoice_request_changes_its_status(
    context: Context, before: tuple[str, ...], wanted: str | None, afterwards: str
) -> None:
    invoice_id = await create_request(context.api)
    for status in [*before, *filter(None, [wanted])]:
        assert (await put(context.api, invoice_id, status=status))[0] == 200
    assert (await get_request(context.api, invoice_id))["status"] == afterwards


# Limits


THIS_YEAR, LAST_YEAR = "2026-01-31T09:30:00Z", "2025-01-31T09:30:00Z"
#: A case, the changes of another invoice than the one with code 5 of this year, and the status.
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
    (
        "the same code of the same type in another year",
        {"adjustmentNoteCode": 5, "type": "CREDIT_NOTE", "adjustmentNoteIssueDate": LAST_YEAR},
        422,
    ),
)


@pytest.mark.parametrize(
    "changes, expected", [row[1:] for row in INVOICE_CODES], ids=[row[0] for row in INVOICE_CODES]
)
async def test_an_invoice_code_is_unique_per_year(
    context: Context, changes: dict[str, Any], expected: int
) -> None:
    await create_invoice(context.api, code=5, issueDateTime=THIS_YEAR)
    other = await create_invoice(context.api, code=7, issueDateTime="2020-06-01T00:00:00Z")
    await expect(context.api, expected, "PUT", f"/api/invoices/{other}", json=changes)
    await request_json(context.api, "DELETE", f"/api/invoices/{other}")
    created = expected if expected == 422 else 201
    await expect(context.api, created, "POST", "/api/invoices", json=invoice(**changes))


@pytest.mark.parametrize(
    "changes, expected", [row[1:] for row in NOTE_CODES], ids=[row[0] for row in NOTE_CODES]
)
async def test_a_note_code_is_unique_per_type(
    context: Context, changes: dict[str, Any], expected: int
) -> None:
    target = await create_valid_invoice(context.api)
    await create_note(context.api, target, adjustmentNoteCode=5, adjustmentNoteIssueDate=THIS_YEAR)
    other = await create_note(context.api, target, adjustmentNoteCode=7, type="REFUND_NOTE")
    await expect(context.api, expected, "PUT", f"/api/adjustment-notes/{other}", json=changes)
    await request_json(context.api, "DELETE", f"/api/adjustment-notes/{other}")
    created, path = expected if expected == 422 else 201, f"/api/invoices/{target}/adjustment-note"
    await expect(context.api, created, "POST", path, json=note(**changes))


async def another_user(context: Context) -> None:
    await create_user(context.api, email=f"{next(NUMBERS)}@example.com")


async def another_note(context: Context) -> None:
    """Create a note against the one invoice, which is created for the first note."""
    _, found = await request_json(context.api, "GET", "/api/invoices")
    ids = [invoice["id"] for invoice in found["data"]]
    await create_note(context.api, ids[0] if ids else await create_valid_invoice(context.api))


#: A list endpoint, and the function that creates a record.
LISTS: tuple[tuple[str, Callable[[Context], Awaitable[Any]]], ...] = (
    ("/api/invoices", draft),
    ("/api/adjustment-notes", another_note),
    ("/api/einvoice-requests", request),
    ("/api/integrations/users", another_user),
    ("/api/integrations/organizations", organization),
)


@pytest.mark.parametrize("path, create", LISTS)
async def test_the_default_page_is_1_with_10_records(
    context: Context, path: str, create: Callable[[Context], Awaitable[Any]]
) -> None:
    for _ in range(11):
        await create(context)
    for query, page, size, rows in (
        ("", 1, 10, 10),
        ("?page=2", 2, 10, 1),
        ("?per_page=11", 1, 11, 11),
    ):
        status, body = await request_json(context.api, "GET", f"{path}{query}")
        assert (status, body["meta"]["total"], len(body["data"])) == (200, 11, rows), query
        assert (body["meta"]["current_page"], body["meta"]["per_page"]) == (page, size), query


@pytest.mark.parametrize("path, create", LISTS[:2])
async def test_exports_contain_all_records_of_the_company(
    context: Context, path: str, create: Callable[[Context], Awaitable[Any]]
) -> None:
    for _ in range(11):
        await create(context)
    stranger = await context.start(await make_company(context.environment))
    for api, rows in ((context.api, 11), (stranger, 0)):
        status, body = await request_json(api, "GET", f"{path}/export-all?per_page=10")
        assert (status, len(body)) == (200, rows)


@pytest.mark.parametrize("row", INTEGRATIONS)
async def test_every_integration_response_has_rate_limit_headers(
    context: Context, row: str
) -> None:
    method, path = row.split()
    for headers in ({}, {"X-Portal-Key": "wrong"}):
        url = fill_path(path, {"id": "x"})
        async with context.api.request(method, url, headers=headers) as response:
            assert all(response.headers.get(name, "").isdigit() for name in QUOTA_HEADERS)
