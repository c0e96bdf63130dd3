"""The certificate that signs the company's documents. Its private key comes in, and never goes out. Portal: 11.1"""

import asyncio

from aiohttp import web

from service import json_codec
from service.db.encryption import MissingSecretKey
from service.db.statements import sql
from service.documents.signing import certificate
from service.errors import Conflict, ValidationError
from service.http import app_keys, responses
from service.http.requests import check_if_match, or_not_found, read_body
from service.submission import signers

routes = web.RouteTableDef()

PATH = "/api/companies/signing-certificate"
NOUN = "Signing certificate"
NO_SECRET_KEY = "The service cannot keep a private key: its operator has set no SECRET_KEY."


@routes.get(PATH)
async def get_signing_certificate(request):
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        return responses.record_response(request, or_not_found(await _record(conn, company), NOUN))


@routes.put(PATH)
async def set_signing_certificate(request):
    """Store a certificate and its key in place of what was there.

    Raises Invalid with all that is wrong with them, Conflict where the service has no SECRET_KEY.
    """
    body, _ = await read_body(request, "signing_certificate_update")
    company, database = request[app_keys.COMPANY], request.app[app_keys.DATABASE]
    form = body.get("issuer_form", certificate.DEFAULT_FORM)
    async with database.reading(company) as conn:
        now = (await sql.issuer_get(conn, company_id=company))["now"]
    signer = await _signer(body, form, now)
    async with database.company(company) as conn:
        await sql.company_lock(conn, company_id=company)
        await check_if_match(request, conn, _known, company=company)
        await _store(request, conn, company, signer, form)
        return responses.json_text_response(await _record(conn, company))


@routes.delete(PATH)
async def delete_signing_certificate(request):
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        await sql.company_lock(conn, company_id=company)
        or_not_found(await _record(conn, company), NOUN)
        await check_if_match(request, conn, _known, company=company)
        await sql.signing_certificate_remove(conn, company_id=company)
    return responses.json_response({"success": True, "message": "Signing certificate removed."})


async def _signer(body, form, now):
    """The signer of a body. Raises Invalid. An encrypted key takes most of a second, so not on the event loop."""
    texts = body["certificate"], body["key"], body.get("password")
    try:
        return await asyncio.to_thread(certificate.read_pair, *texts, issuer_form=form, now=now)
    except certificate.Unusable as why:
        raise ValidationError(why.faults) from None


async def _store(request, conn, company, signer, form):
    try:
        await signers.store(
            conn, request.app[app_keys.SUBMISSION_CONTEXT].signers.vault, company, signer, form
        )
    except MissingSecretKey:
        raise Conflict(NO_SECRET_KEY) from None


async def _record(conn, company):
    """The JSON text of the answer, None when there is no certificate."""
    record = await signers.stored(conn, company)
    return record and json_codec.dumps({"data": record})


async def _known(conn, company):
    return await _record(conn, company) or ""
