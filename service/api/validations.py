"""Validation helpers: whether a TIN exists, and whether a code is free. Spec: Validations."""

from datetime import UTC, datetime

from aiohttp import web

from service import schema
from service.db.statements import sql
from service.documents import codes, states
from service.documents.body_checks import code_year
from service.documents.ubl import parties
from service.errors import BadRequest
from service.http import app_keys, responses
from service.http.requests import read_body

routes = web.RouteTableDef()

NOTE_TYPES = schema.ALL["adjustment_note_create"]["properties"]["type"]["enum"]

#: checking a TIN: the first row that holds refuses. Spec: Errors
TIN_REFUSALS = (
    (
        lambda kind, number, tin: kind not in codes.TABLES["registration_types"],
        "Invalid registration type",
    ),
    (
        lambda kind, number, tin: number and not tin,
        "TIN is required when only registration number is provided",
    ),
    (lambda kind, number, tin: not tin, "TIN or registration number is required"),
)


@routes.post("/api/validation/tin")
async def validate_tin(request):
    """Ask the portal for a TIN and the identifier that belongs with it; the portal decides what a TIN alone is worth.

    Blank texts count as absent. Raises BadRequest by TIN_REFUSALS.
    """
    body, _ = await read_body(request, "validation_tin")
    kind, number, tin = (
        body.get("registration_type"),
        parties.identifier(body.get("registration_number")),
        _tin(body),
    )
    if message := states.refusal(TIN_REFUSALS, kind, number, tin):
        raise BadRequest(message)
    await request.app[app_keys.TIN_CHECKS].confirm(
        request[app_keys.COMPANY], tin, kind, number, request[app_keys.KEY_ID]
    )
    return responses.json_response({"data": {"valid": True}, "message": "TIN is valid"})


@routes.post("/api/validation/invoice-code")
async def validate_invoice_code(request):
    """Whether a code is free in the current year of the business time zone."""
    body, _ = await read_body(request, "validation_invoice_code")
    year = code_year(datetime.now(UTC), request.app[app_keys.CONFIG].time_zone)
    code, except_id = _whole(body["invoice_code"]), _whole(body.get("invoice_id"))
    return await _free(
        request, sql.invoice_code_used, code_year=year, code=code, except_id=except_id
    )


@routes.post("/api/validation/adjustment-note-code")
async def validate_adjustment_note_code(request):
    """Whether a code is free among the notes of a type. Raises BadRequest for a type that there is not."""
    body, _ = await read_body(request, "validation_adjustment_note_code")
    kind = body.get("adjustment_note_type")
    if kind not in NOTE_TYPES:
        raise BadRequest("Invalid adjustment note type")
    code, except_id = _whole(body["adjustment_note_code"]), _whole(body.get("adjustment_note_id"))
    return await _free(
        request, sql.adjustment_note_code_used, type=kind, code=code, except_id=except_id
    )


async def _free(request, used, **asked):
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        is_used = await used(conn, company_id=company, **asked)
    return responses.json_response({"data": {"success": not is_used}})


def _tin(body):
    """The TIN as the portal compares them; '' for one of dots alone, which cannot stand in an address."""
    tin = parties.own_tin(body)
    return tin if tin.strip(".") else ""


def _whole(number):
    """An integer of a body, which may be written 7.0."""
    return None if number is None else int(number)
