"""The certificate that signs the company's documents. Portal: 11.1

The private key is stored encrypted and never returned.
"""

from aiohttp import web

from service import json_codec
from service.api.operation import Group, Operation
from service.api.records import get_own_record
from service.db.connections import Connection
from service.db.encryption import SIGNING_KEY, MissingSecretKey
from service.db.statements import sql
from service.documents.signing import certificate
from service.errors import ValidationError, violation
from service.http import app_keys, responses
from service.http.access import company_transaction
from service.http.requests import check_if_match, not_found, or_not_found
from service.json_types import JsonObject
from service.offload import run_in_thread
from service.submission import signers
from service.submission.context import SUBMISSION_CONTEXT

GROUP = Group("Company")

NOUN = "Signing certificate"
REMOVED = "Signing certificate removed."


@Operation(
    GROUP,
    "GET /api/companies/signing-certificate",
    "Get the certificate that signs the company's documents",
    "SigningCertificateAnswer",
    errors=(not_found(NOUN),),
    description="Its names, its validity and a warning, without the private key.",
    is_record=True,
)
async def get_signing_certificate(request: web.Request) -> web.Response:
    return await get_own_record(request, _read_record, NOUN)


@Operation(
    GROUP,
    "PUT /api/companies/signing-certificate",
    "Store a certificate and its private key",
    "SigningCertificateAnswer",
    body="signing_certificate_update",
    errors=(
        ValidationError([violation("/key", "match", certificate.OTHER_KEY)]),
        MissingSecretKey(SIGNING_KEY),
    ),
    description="Replaces the previous ones. The key is stored encrypted and never returned.",
)
async def set_signing_certificate(request: web.Request, body: JsonObject) -> web.Response:
    company, database = request[app_keys.COMPANY], request.app[app_keys.DATABASE]
    form = body.get("issuer_form", certificate.DEFAULT_FORM)
    async with database.reading(company) as conn:
        now = await sql.database_now(conn)
    texts = body["certificate"], body["key"], body.get("password")
    # Decrypting a key takes most of a second.
    signer = await run_in_thread(certificate.read_pair, *texts, issuer_form=form, now=now)
    vault = request.app[SUBMISSION_CONTEXT].signers.vault
    async with company_transaction(request) as conn:
        await sql.company_lock(conn, company_id=company)
        await check_if_match(request, conn, _read_record, company=company)
        await signers.store(conn, vault, company, signer, form)
        return responses.json_text_response(await _read_record(conn, company) or "")


@Operation(
    GROUP,
    "DELETE /api/companies/signing-certificate",
    "Remove the certificate and its private key",
    "Success",
    message=REMOVED,
    errors=(not_found(NOUN),),
    description="Later documents are signed with the certificate of the service, if it has one.",
)
async def delete_signing_certificate(request: web.Request) -> web.Response:
    company = request[app_keys.COMPANY]
    async with company_transaction(request) as conn:
        await sql.company_lock(conn, company_id=company)
        or_not_found(await _read_record(conn, company), NOUN)
        await check_if_match(request, conn, _read_record, company=company)
        await sql.signing_certificate_remove(conn, company_id=company)
    return responses.success_response(request, REMOVED)


async def _read_record(conn: Connection, company: int) -> str | None:
    """Return the JSON text of the response, or None if there is no certificate."""
    record = await signers.stored(conn, company)
    return json_codec.dumps({"data": record}) if record else None
