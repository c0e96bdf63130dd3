"""Validation of TINs and of codes for new documents. Spec: Validations"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from aiohttp import web

from service import schema
from service.api.operation import ErrorResponse, Group
from service.db.statements import Statement, sql
from service.documents import codes, states
from service.documents.body_checks import get_code_year
from service.documents.ubl import parties
from service.errors import BadRequest, TooManyRequests, Unavailable
from service.http import app_keys, responses
from service.http.access import zone_of
from service.json_types import JsonObject
from service.submission import own_clients
from service.submission.operator import tin_checks
from service.submission.operator.tin_checks import AWAY, SLOW_DOWN, TIN_CHECKS, TinQuestion

operation = GROUP = Group("Validations")

VALID = "TIN is valid"
INVALID_NOTE_TYPE = "Invalid adjustment note type"
NOTE_TYPES = schema.get_values("note_type")

#: (condition of registration type, registration number and TIN; message). The first condition that
#: is true rejects a TIN check. Spec: Errors
TIN_REFUSALS: tuple[tuple[Callable[[str, str, str], object], str], ...] = (
    (
        lambda kind, number, tin: kind not in codes.get_names("registration_types"),
        "Invalid registration type",
    ),
    (
        lambda kind, number, tin: number and not tin,
        "TIN is required when only registration number is provided",
    ),
    (lambda kind, number, tin: not tin, "TIN or registration number is required"),
)


@operation(
    "POST /api/validation/tin",
    "Validate a TIN",
    "Validity",
    body="validation_tin",
    errors=(
        *(BadRequest(message, code="validation_failed") for _, message in TIN_REFUSALS),
        BadRequest(states.TIN_NOT_VERIFIED["message"], code=states.TIN_NOT_VERIFIED["code"]),
        ErrorResponse(404, "PortalError"),
        TooManyRequests(SLOW_DOWN),
        Unavailable(AWAY, code="portal_unavailable"),
        Unavailable(
            tin_checks.OWN_REFUSED.format(words="User blocked."), code=own_clients.REFUSED_CODE
        ),
    ),
    description="Asks the portal. A TIN that it does not know is a 404 with the portal's error "
    "body.",
)
async def validate_tin(request: web.Request, body: JsonObject) -> web.Response:
    """Ask the portal whether a TIN exists and matches a registration number.

    Empty texts count as absent. A TIN alone is sent to the portal as well. Raises BadRequest by
    TIN_REFUSALS, UnknownTin.
    """
    kind, tin = body.get("registration_type", ""), _read_tin(body)
    number = parties.normalize_identifier(body.get("registration_number"))
    if message := states.find_refusal(TIN_REFUSALS, kind, number, tin):
        raise BadRequest(message, code="validation_failed")
    question = TinQuestion(request[app_keys.COMPANY], tin, kind, number)
    await request.app[TIN_CHECKS].confirm(question)
    return responses.json_response({"data": {"valid": True}, "message": VALID})


@operation(
    "POST /api/validation/invoice-code",
    "Check an invoice code",
    "CodeIsFree",
    body="validation_invoice_code",
    description="Returns whether it is free in the current year.",
)
async def validate_invoice_code(request: web.Request, body: JsonObject) -> web.Response:
    year = get_code_year(datetime.now(UTC), zone_of(request))
    code, except_id = _to_integer(body["invoice_code"]), _to_integer(body.get("invoice_id"))
    return await _report_use(
        request, sql.invoice_code_used, code_year=year, type=None, code=code, except_id=except_id
    )


@operation(
    "POST /api/validation/adjustment-note-code",
    "Check an adjustment note code",
    "CodeIsFree",
    body="validation_adjustment_note_code",
    errors=(BadRequest(INVALID_NOTE_TYPE, code="validation_failed"),),
    description="Returns whether it is free among the notes of its type.",
)
async def validate_adjustment_note_code(request: web.Request, body: JsonObject) -> web.Response:
    kind = body.get("adjustment_note_type")
    if kind not in NOTE_TYPES:
        raise BadRequest(INVALID_NOTE_TYPE, code="validation_failed")
    code = _to_integer(body["adjustment_note_code"])
    except_id = _to_integer(body.get("adjustment_note_id"))
    own = {"code_year": None, "type": kind, "code": code, "except_id": except_id}
    return await _report_use(request, sql.adjustment_note_code_used, **own)


async def _report_use(
    request: web.Request, statement: Statement, **variables: object
) -> web.Response:
    """Return a response that tells whether a code is free. `statement` returns if it is used."""
    company = request[app_keys.COMPANY]
    is_used = await request.app[app_keys.DATABASE].read(statement, company_id=company, **variables)
    return responses.json_response({"data": {"success": not is_used}})


def _read_tin(body: JsonObject) -> str:
    """Return the TIN as the portal compares it.

    A TIN of dots alone counts as absent: it cannot be a segment of a URL path.
    """
    tin = parties.get_own_tin(body)
    return tin if tin.strip(".") else ""


def _to_integer(number: int | Decimal | None) -> int | None:
    """Return an integer of a body, which may be sent as 7.0."""
    return None if number is None else int(number)
