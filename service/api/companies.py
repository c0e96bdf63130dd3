"""The company of the key: its record and its settings. Spec: Company"""

from aiohttp import web

from service import json_codec
from service.api.operation import ErrorResponse, Group, Operation
from service.api.records import get_own_record
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import codes
from service.documents.ubl import parties
from service.errors import CONSTRAINTS, Conflict, reject
from service.http import app_keys, responses
from service.http.access import company_transaction
from service.http.idempotency import store_response
from service.http.requests import check_if_match, or_not_found
from service.json_types import JsonObject

GROUP = Group("Company")

NOUN = "Company"
TAXES = "default_tax_types_and_rates"
TIN_IN_USE = (
    "The TIN cannot be changed while documents are being submitted or validated. "
    "Please try again when the portal has validated them."
)


@Operation(
    GROUP,
    "GET /api/companies",
    "Get the company of the key",
    "CompanyAnswer",
    description="`readiness` lists what the company needs before it can submit documents.",
    is_record=True,
)
async def get_company(request: web.Request) -> web.Response:
    return await get_own_record(request, _read_record, NOUN)


@Operation(
    GROUP,
    "PUT /api/companies",
    "Update the company of the key",
    "CompanyAnswer",
    body="company_update",
    errors=(
        Conflict(TIN_IN_USE, code="tin_in_use"),
        ErrorResponse(409, "TinTaken", CONSTRAINTS["companies_tin_once"]().body),
    ),
    description="Sent members replace stored ones; `setting` and `default_tax_types_and_rates` "
    "are replaced as a whole. "
    "A verified TIN belongs to one company. A changed TIN is unverified: until the operator of the "
    "service verifies it, submissions, cancellations and TIN checks are a 400 with the code "
    "tin_not_verified. The first verification decides between companies with one unverified TIN.",
)
async def update_company(request: web.Request, body: JsonObject) -> web.Response:
    company = request[app_keys.COMPANY]
    async with company_transaction(request) as conn:
        row = dict(or_not_found(await sql.company_lock(conn, company_id=company), NOUN))
        await check_if_match(request, conn, _read_record, company=company)
        _reject_unknown_codes(row, body)
        if body.get("tin_code", row["tin_code"]) != row["tin_code"]:
            await sql.lock_tin(conn, tin=parties.normalize_tin(body["tin_code"]))
            await _reject_used_tin(conn, company)
        is_automatic = request.app[app_keys.CONFIG].tin_verification == "automatic"
        await sql.company_update(
            conn,
            company_id=company,
            verifies_tin=is_automatic and "tin_code" in body,
            **{**row, **_columns(body)},
        )
        response = responses.json_text_response(await _read_record(conn, company))
        await store_response(request, conn, response)
        return response


async def _read_record(conn: Connection, company: int) -> str:
    record = or_not_found(await sql.company_get(conn, company_id=company), NOUN)
    return f'{{"data":{record}}}'


def _reject_unknown_codes(row: JsonObject, changes: JsonObject) -> None:
    """Raise ValidationError for unknown codes.

    Valid states depend on the country, so that a change of one is checked with the other.
    """
    stored = {name: row[name] for name in ("state", "country") if row[name]}
    sent = {**stored, **changes} if {"state", "country"} & changes.keys() else changes
    reject(codes.find_violations(sent, codes.COMPANY))


async def _reject_used_tin(conn: Connection, company: int) -> None:
    """Raise Conflict while documents are submitted or validated.

    Waits for transactions that are about to send a document with the TIN.
    """
    await sql.company_lock_alone(conn, company_id=company)
    if (await sql.company_work(conn, company_id=company))["is_submitting"]:
        raise Conflict(TIN_IN_USE, code="tin_in_use")


def _columns(changes: JsonObject) -> JsonObject:
    """Return the changed columns.

    PREFIX_DIGIT_COUNT becomes an int, also when sent as 5.0: a view casts its text to integer.
    """
    columns = dict(changes)
    if setting := changes.get("setting"):
        digits = int(setting["PREFIX_DIGIT_COUNT"])
        columns["setting"] = json_codec.dumps({**setting, "PREFIX_DIGIT_COUNT": digits})
    if TAXES in changes:
        taxes = [{**tax, "factor_type": "percentage"} for tax in changes[TAXES]]
        columns[TAXES] = json_codec.dumps(taxes)
    return columns
