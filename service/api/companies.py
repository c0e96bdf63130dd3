"""The company of the key: its record and its settings, its certificate and its own portal client.

Private key and client secret are stored encrypted and never returned. Spec: Company
"""

from dataclasses import replace

from aiohttp import web

from service import json_codec
from service.api.operation import Group
from service.api.records import get_own_record
from service.db.connections import Connection
from service.db.encryption import PORTAL_SECRET, SIGNING_KEY, MissingSecretKey
from service.db.statements import sql
from service.documents import codes
from service.documents.signing import certificate
from service.documents.ubl import parties
from service.errors import (
    CONSTRAINTS,
    BadRequest,
    Conflict,
    TooManyRequests,
    Unavailable,
    ValidationError,
    reject,
    retry_after,
    violation,
)
from service.http import app_keys, responses
from service.http.access import company_transaction, run_shared
from service.http.idempotency import store_response
from service.http.requests import check_if_match, not_found, or_not_found
from service.json_types import JsonObject
from service.offload import run_in_thread
from service.portal.logins import Login
from service.submission import own_clients, signers
from service.submission.context import SUBMISSION_CONTEXT

operation = GROUP = Group("Company")

NOUN, CERTIFICATE, CREDENTIALS = "Company", "Signing certificate", "Portal credentials"
CERTIFICATE_PATH = "/api/companies/signing-certificate"
CREDENTIALS_PATH = "/api/companies/portal-credentials"
TAXES = "default_tax_types_and_rates"
TIN_IN_USE = (
    "The TIN cannot be changed while documents are being submitted or validated. "
    "Please try again when the portal has validated them."
)
BUSY = (
    "The portal credentials cannot be changed while documents are being submitted, validated or "
    "cancelled. Please try again when the portal has validated them."
)
TOO_MANY_TESTS = "Too many tests of portal credentials, please slow down."


@operation(
    "GET /api/companies",
    "Get the company of the key",
    "CompanyAnswer",
    description="`readiness` lists what the company needs before it can submit documents.",
    is_record=True,
)
async def get_company(request: web.Request) -> web.Response:
    return await get_own_record(request, _read_company, NOUN)


@operation(
    "PUT /api/companies",
    "Update the company of the key",
    "CompanyAnswer",
    body="company_update",
    errors=(
        Conflict(TIN_IN_USE, code="tin_in_use"),
        CONSTRAINTS["companies_tin_once"](),
    ),
    description="Sent members replace stored ones; `setting` and `default_tax_types_and_rates` "
    "are replaced as a whole. "
    "A verified TIN belongs to one company. A changed TIN is unverified: until the operator of the "
    "service verifies it, submissions, cancellations and TIN checks are a 400 with the code "
    "tin_not_verified. The first verification decides between companies with one unverified TIN.",
)
async def update_company(request: web.Request, body: JsonObject) -> web.Response:
    async with company_transaction(request) as conn:
        row = dict(or_not_found(await sql.company_lock(conn), NOUN))
        await check_if_match(request, conn, _read_company)
        _reject_unknown_codes(row, body)
        if body.get("tin_code", row["tin_code"]) != row["tin_code"]:
            await sql.lock_tin(conn, tin=parties.normalize_tin(body["tin_code"]))
            await _reject_used_tin(conn)
        is_automatic = request.app[app_keys.CONFIG].tin_verification == "automatic"
        await sql.company_update(
            conn,
            action="change",
            subject="company settings",
            verifies_tin=is_automatic and "tin_code" in body,
            **{**row, **_columns(body)},
        )
        response = responses.json_text_response(await _read_company(conn))
        await store_response(request, conn, response)
        return response


async def _read_company(conn: Connection) -> str:
    record = or_not_found(await sql.company_get(conn), NOUN)
    return f'{{"data":{record}}}'


def _reject_unknown_codes(row: JsonObject, changes: JsonObject) -> None:
    """Raise ValidationError for unknown codes.

    Valid states depend on the country, so that a change of one is checked with the other.
    """
    stored = {name: row[name] for name in ("state", "country") if row[name]}
    sent = {**stored, **changes} if {"state", "country"} & changes.keys() else changes
    reject(codes.find_violations(sent, codes.COMPANY))


async def _reject_used_tin(conn: Connection) -> None:
    """Raise Conflict while documents are submitted or validated.

    Waits for transactions that are about to send a document with the TIN.
    """
    await sql.company_lock_alone(conn)
    if (await sql.company_work(conn))["is_submitting"]:
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


# The certificate that signs documents. Portal: 11.1


@operation(
    f"GET {CERTIFICATE_PATH}",
    "Get the certificate that signs the company's documents",
    "SigningCertificateAnswer",
    errors=(not_found(CERTIFICATE),),
    description="Its names, its validity and a warning, without the private key.",
    is_record=True,
)
async def get_signing_certificate(request: web.Request) -> web.Response:
    return await get_own_record(request, _read_certificate, CERTIFICATE)


@operation(
    f"PUT {CERTIFICATE_PATH}",
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
    company = request[app_keys.COMPANY]
    form = body.get("issuer_form", certificate.DEFAULT_FORM)
    now = await run_shared(request, sql.database_now)
    texts = body["certificate"], body["key"], body.get("password")
    # Decrypting a key takes most of a second.
    signer = await run_in_thread(certificate.read_pair, *texts, issuer_form=form, now=now)
    vault = request.app[SUBMISSION_CONTEXT].signers.vault
    async with company_transaction(request) as conn:
        await sql.company_lock(conn)
        await check_if_match(request, conn, _read_certificate)
        await signers.store(conn, vault, company, signer, form)
        return responses.json_text_response(await _read_certificate(conn) or "")


@operation(
    f"DELETE {CERTIFICATE_PATH}",
    "Remove the certificate and its private key",
    "Success",
    message=f"{CERTIFICATE} removed.",
    errors=(not_found(CERTIFICATE),),
    description="Later documents are signed with the certificate of the service, if it has one.",
)
async def delete_signing_certificate(request: web.Request) -> None:
    async with company_transaction(request) as conn:
        await sql.company_lock(conn)
        or_not_found(await _read_certificate(conn), CERTIFICATE)
        await check_if_match(request, conn, _read_certificate)
        await sql.signing_certificate_remove(conn)


async def _read_certificate(conn: Connection) -> str | None:
    """Return the JSON text of the response, or None if there is no certificate."""
    record = await signers.stored(conn)
    return json_codec.dumps({"data": record}) if record else None


# The client at the portal that is used instead of the operator's. Portal: 2


@operation(
    f"GET {CREDENTIALS_PATH}",
    "Get the company's own portal credentials, without the secret",
    "PortalCredentialsAnswer",
    errors=(not_found(CREDENTIALS),),
    description="A 404 means that the company uses the operator's client.",
    is_record=True,
)
async def get_portal_credentials(request: web.Request) -> web.Response:
    return await get_own_record(request, _read_credentials, CREDENTIALS)


@operation(
    f"PUT {CREDENTIALS_PATH}",
    "Log in to the portal with the company's own client",
    "PortalCredentialsAnswer",
    body="portal_credentials_update",
    errors=(
        BadRequest(
            own_clients.REFUSED.format(words="User blocked."), code=own_clients.REFUSED_CODE
        ),
        MissingSecretKey(PORTAL_SECRET),
        Conflict(BUSY, code="tin_in_use"),
        Unavailable(own_clients.NOT_TESTED, code="portal_unavailable"),
    ),
    description="The portal must accept a login with them. Replaces the previous ones. The secret "
    "is stored encrypted and never returned.",
)
async def set_portal_credentials(request: web.Request, body: JsonObject) -> web.Response:
    company, context = request[app_keys.COMPANY], request.app[SUBMISSION_CONTEXT]
    if not context.config.secret_key:
        raise MissingSecretKey(PORTAL_SECRET)
    login = Login(body["client_id"], body["client_secret"])
    async with company_transaction(request) as conn:
        login = replace(login, own_tin=await _lock_alone(request, conn))
        await _reject_busy(conn, login)
    if wait := request.app[app_keys.LIMITS].portal_tests.take(company):
        raise TooManyRequests(TOO_MANY_TESTS, retry_after(wait))
    await own_clients.check_login(context, login)
    async with company_transaction(request) as conn:
        login = replace(login, own_tin=await _lock_alone(request, conn))
        await _reject_busy(conn, login)
        await own_clients.store(conn, context.config, company, login)
        return responses.json_text_response(await _read_credentials(conn) or "")


@operation(
    f"DELETE {CREDENTIALS_PATH}",
    "Remove the company's own portal credentials",
    "Success",
    message=f"{CREDENTIALS} removed.",
    errors=(not_found(CREDENTIALS), Conflict(BUSY, code="tin_in_use")),
    description="The operator's client is used again. It does not see the documents that the "
    "company sent with its own client.",
)
async def delete_portal_credentials(request: web.Request) -> None:
    async with company_transaction(request) as conn:
        or_not_found(await _read_credentials(conn), CREDENTIALS)
        await _lock_alone(request, conn)
        # The removal is first: a send waits for it, or the check sees what was sent.
        or_not_found(await sql.portal_credentials_remove(conn), CREDENTIALS)
        await _reject_busy(conn, None)


async def _lock_alone(request: web.Request, conn: Connection) -> str:
    """Lock the company and return its normalised TIN. Raises PreconditionFailed.

    Waits for transactions that are about to send or cancel a document.
    """
    await sql.company_lock_alone(conn)
    await check_if_match(request, conn, _read_credentials)
    issuer = await sql.issuer_get(conn)
    return parties.normalize_tin(issuer["tin_code"])


async def _reject_busy(conn: Connection, login: Login | None) -> None:
    """Raise Conflict while documents are under way that the new login may not see.

    Another client of the same taxpayer sees them. It may be needed, because the portal no longer
    accepts the former one. After a removal the operator's client sends what was not received.
    """
    row = await sql.portal_credentials_get(conn)
    if row and login and row["tin"] == login.own_tin:
        return
    work = await sql.company_work(conn)
    is_under_way = work["is_submitting"] if login else work["is_sent"]
    if is_under_way or work["is_cancelling"]:  # Another login might not see it.
        raise Conflict(BUSY, code="tin_in_use")


async def _read_credentials(conn: Connection) -> str | None:
    """Return the JSON text of the response, or None if there are no credentials."""
    record = await sql.portal_credentials_record(conn)
    return f'{{"data":{record}}}' if record else None
