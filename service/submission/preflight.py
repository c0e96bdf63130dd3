"""What the portal would say of a record as it stands: nothing is sent, and nothing is changed."""

from service import json_codec
from service.db.statements import sql
from service.documents import states
from service.documents.checks import preflight
from service.documents.money import AmountError
from service.documents.signing import certificate
from service.documents.ubl import document
from service.errors import BadRequest
from service.http.requests import or_not_found
from service.offload import offload
from service.submission import checks, submit
from service.submission.document_kinds import check_ready

#: status of a record that is not sent again -> our code, and what it means.
STANDING = {
    "Submitting": ("Submitting", "The submission of the {noun} is under way."),
    "Submitted": ("AlreadySubmitted", states.ALREADY_SUBMITTED),
    "Valid": ("AlreadySubmitted", states.ALREADY_SUBMITTED),
}
#: What a note's target means to the portal. Portal: 14.7
NO_TARGET = {
    "code": "DR303",
    "path": "/targetInvoiceType",
    "message": states.NOTE_WITHOUT_VALID_INVOICE,
}


async def preflight_document(context, company, subject, id, at=None):
    """The JSON text of {ready, errors, warnings, document} of a record, judged as of the instant `at`, or now. Raises NotFound.

    `document` is what would be sent, without a signature; null while none can be built.
    """
    async with context.database.company(company) as conn:
        row = dict(or_not_found(await subject.locked(conn, company, id), subject.title))
        issuer = dict(await sql.issuer_get(conn, company_id=company))
        row["now"] = issuer["now"] = at or issuer["now"]
        source = await offload(len(row["body"]), json_codec.stored_body, row)
        issued_at = submit.issue_time(row["issue_date"], row["attempts"], issuer["now"])
        errors = await _standing(context.config, conn, company, subject, row)
        if issuer["tin_verified_at"] is None:
            errors.append(states.TIN_NOT_VERIFIED)
        judged = await checks.findings(
            context.config, conn, company, row, source, issuer, issued_at
        )
        unsigned, ending = await context.signers.outlook(conn, company, issuer)
    standing = [*errors, *preflight.errors(judged), *unsigned]
    facts = (context.config, row, source, issuer, issued_at, judged)
    warnings = [*preflight.warnings(judged), *map(_of_certificate, ending)]
    return await offload(len(row["body"]), _worded, facts, standing, warnings)


def _worded(facts, errors, warnings):
    built = _built(*facts)
    errors = _each_once([*errors, *_size_refusals(built)])
    told = {"ready": not errors, "errors": errors, "warnings": warnings, "document": built}
    return document.encode(told).decode()


def _of_certificate(sentence):
    return {"code": "Certificate", "path": certificate.PATH, "message": sentence}


async def _standing(config, conn, company, subject, row):
    """Why the record is not sent, whatever is in it."""
    if row["status"] in STANDING:
        code, message = STANDING[row["status"]]
        return [{"code": code, "path": "", "message": message.format(noun=subject.noun)}]
    try:
        await check_ready(conn, config, company, subject, row)
    except BadRequest as refusal:
        return refusal.more.get("errors") or [NO_TARGET]
    return []


def _built(config, row, source, issuer, issued_at, judged):
    if not preflight.can_be_built(judged):
        return None
    version = config.portal_document_version
    try:
        return document.build(
            source, issuer, number=row["number"], issued_at=issued_at, version=version
        )
    except AmountError:  # a rate that is missing on a day on which the portal did not ask for one
        return None


def _size_refusals(built):
    return checks.size_refusals(document.encode(built)) if built else []


def _each_once(errors):
    """What a dependency and a rule say of one place, said by the first of them."""
    kept = {}
    for error in errors:
        kept.setdefault((error["code"], error["path"]), error)
    return list(kept.values())
