"""The company of the key: its record and its settings. Spec: Company."""

from aiohttp import web

from service import json_codec
from service.db.statements import sql
from service.documents import codes
from service.errors import Conflict, ValidationError
from service.http import app_keys, responses
from service.http.requests import check_if_match, or_not_found, read_body

routes = web.RouteTableDef()

NOUN = "Company"
TIN_IN_USE = (
    "The TIN cannot be changed while documents are being submitted or validated, "
    "please try again when the portal has judged them."
)


@routes.get("/api/companies")
async def get_company(request):
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        return responses.record_response(request, await _record(conn, company_id=company))


@routes.put("/api/companies")
async def update_company(request):
    """Change the sent fields; the setting is replaced whole.

    A new TIN is not verified, unless TIN_VERIFICATION is automatic. Raises Invalid for unknown codes, Conflict while
    documents are on their way under the present TIN. A TIN of another company violates companies_tin_once.
    """
    body, _ = await read_body(request, "company_update")
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = dict(or_not_found(await sql.company_lock(conn, company_id=company), NOUN))
        await check_if_match(request, conn, _record, company_id=company)
        _refuse_unknown_codes(row, body)
        if body.get("tin_code", row["tin_code"]) != row["tin_code"]:
            await _refuse_tin_in_use(conn, company)
        verifies_tin = request.app[app_keys.CONFIG].tin_verification == "automatic"
        await sql.company_update(
            conn, company_id=company, verifies_tin=verifies_tin, **{**row, **_columns(body)}
        )
        return responses.json_text_response(await _record(conn, company_id=company))


async def _record(conn, company_id):
    """The JSON text of the company as both answers give it."""
    record = or_not_found(await sql.company_get(conn, company_id=company_id), NOUN)
    return f'{{"data":{record}}}'


def _refuse_unknown_codes(row, changes):
    """What a state is depends on the country: of the two, the one that is not sent is looked at with the other."""
    place = {name: row[name] for name in ("state", "country") if row[name]}
    sent = {**place, **changes} if {"state", "country"} & changes.keys() else changes
    if faults := codes.violations(sent, codes.COMPANY):
        raise ValidationError(faults)


async def _refuse_tin_in_use(conn, company):
    """Waits for those who are about to send a document with the TIN."""
    await sql.company_lock_alone(conn, company_id=company)
    if await sql.company_has_undecided(conn, company_id=company):
        raise Conflict(TIN_IN_USE)


def _columns(changes):
    """The changed columns. The count of digits is stored as an integer however it was written: SQL casts it."""
    if "setting" not in changes:
        return changes
    setting = changes["setting"]
    digits = int(setting["PREFIX_DIGIT_COUNT"])
    return {**changes, "setting": json_codec.dumps({**setting, "PREFIX_DIGIT_COUNT": digits})}
