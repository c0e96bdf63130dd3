"""E-invoice requests: a buyer asks for an e-invoice, the company approves or rejects it.

Spec: E-invoice requests
"""

from datetime import UTC, datetime
from functools import partial

from aiohttp import web

from service import json_codec, schema
from service.api import documents, filters, links, pagination
from service.api.operation import REPLACES, Group
from service.api.records import get_record, list_records, lock_record, store_created
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import codes, states
from service.documents.body_checks import find_size_violations
from service.documents.checks.party import SHORT_POSTCODE
from service.documents.checks.preflight import check_buyer
from service.documents.kind import INVOICE
from service.errors import Conflict, ValidationError, reject, violation
from service.http import app_keys, responses
from service.http.access import company_transaction
from service.http.requests import get_text, or_not_found, read_path_id, warn_of_removed
from service.json_types import JsonObject, Row
from service.offload import offload
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.locked_documents import lock_document
from service.submission.sending import submit

NOUN = "E-invoice request"
operation = GROUP = Group("E-invoice requests", NOUN)

FILTERS = (
    filters.several_of(
        "status", schema.get_values("einvoice_request_status"), "EinvoiceRequestStatus"
    ),
    filters.search_for(
        "the invoice's full code, or a part of the buyer's name and TIN that begins with a word"
    ),
    filters.METADATA,
    filters.sort_by(("id", "-id")),
)
CREATED = "E-invoice request created."
UPDATED = "E-invoice request updated."
LONE_REASON = "A reason requires the status Reject in the same request."
UNNAMED = "An e-invoice that a buyer asks for must name the buyer."
#: Reason of the rejection of other requests for an invoice, which their buyers see.
OTHER_BUYER = "The e-invoice was issued to another buyer."
#: Members of a request that do not describe its buyer.
NOT_OF_BUYER = {"invoiceCode", "metadata"}
MOST_PENDING = 10  # requests by one link
ambiguous_code = partial(
    Conflict,
    "The invoice code matches several invoices that are pending finalization. "
    "Update the intended invoice instead.",
    code="ambiguous_code",
)
buyer_waits = partial(
    Conflict, "A request with this TIN or registration number already waits for the seller."
)
link_full = partial(
    Conflict,
    f"{MOST_PENDING} requests for this purchase already wait for the seller. Contact the seller.",
)
has_buyer = partial(
    Conflict,
    "The invoice already has the buyer of another request. Change the invoice instead.",
    code="invoice_has_buyer",
)


@operation(
    "GET /api/einvoice-requests",
    "List e-invoice requests",
    "EinvoiceRequestList",
    query=(*pagination.PAGE, *FILTERS),
    description="Newest first.",
)
async def list_einvoice_requests(request: web.Request) -> web.StreamResponse:
    return await list_records(request, "einvoice_request", FILTERS)


@operation(
    "POST /api/einvoice-requests",
    "Create an e-invoice request",
    "Created",
    message=CREATED,
    body="einvoice_request_create",
    description="Stores the buyer's request as Pending. All members but `invoiceCode` describe the "
    "buyer.",
)
async def create_einvoice_request(request: web.Request, body: JsonObject) -> web.Response:
    """Store a pending request.

    By a link, raises ValidationError for a buyer whom the portal would not accept, Conflict if a
    request of the buyer or MOST_PENDING requests are pending, and NotFound if it was revoked.
    """
    text = get_text(request)
    reject(codes.find_violations(body, codes.PARTY))
    await offload(len(text), _reject_too_large, body)
    link = request.get(app_keys.LINK)
    if link is not None:
        _reject_wrong_buyer(body, datetime.now(UTC))
    async with company_transaction(request) as conn:
        if link is not None:
            await _check_link(conn, link, text)
        request_id = await sql.einvoice_request_insert(
            conn, link_id=link, secret_sha256=request.get(app_keys.VISITOR_SHA256), body=text
        )
        return await store_created(request, conn, CREATED, {"id": request_id})


@operation(
    "GET /api/einvoice-requests/{id}",
    "Get an e-invoice request",
    "EinvoiceRequest",
    description="With the buyer that it names and the company as supplier.",
    is_record=True,
)
async def get_einvoice_request(request: web.Request) -> web.Response:
    return await get_record(request, sql.einvoice_request_get, NOUN)


@operation(
    "PUT /api/einvoice-requests/{id}",
    "Update, approve or reject an e-invoice request",
    "RequestUpdated",
    message=UPDATED,
    body="einvoice_request_update",
    errors=(documents.in_consolidated_error(), ambiguous_code(), has_buyer()),
    description=f"{REPLACES} Approving a request that names a pending-finalize invoice makes its "
    "buyer the buyer of that invoice, finalizes the invoice, and rejects the other pending "
    "requests that name it.",
)
async def update_einvoice_request(request: web.Request, body: JsonObject) -> web.Response:
    text = get_text(request)
    reject(codes.find_violations(body, codes.PARTY))
    if "reason" in body and body.get("status") != "Reject":
        raise ValidationError([violation("/reason", "status", LONE_REASON)])
    company, request_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    is_approval, finalized = body.get("status") == "Approve", None
    async with company_transaction(request) as conn:
        if is_approval:
            # An approval locks the request, then the invoice, then other requests for that invoice.
            await sql.transaction_lock(conn, name=f"approvals {company}")
        stored = await lock_record(request, conn, "einvoice_request", NOUN, request_id)
        if not _repeats_approval(stored, body):
            await warn_of_removed(request, stored["body"], body)
            row = await sql.einvoice_request_update(conn, id=request_id, body=text)
            await offload(len(row["buyer"]), _reject_too_large_merged, row)
            if is_approval:
                finalized = await _finalize(request, conn, row)
    if finalized is None:
        return responses.success_response(request, UPDATED, data={"id": request_id})
    invoice_id, started = finalized
    sentence, outcome = await submit.describe_outcome(
        request.app[SUBMISSION_CONTEXT], invoice_id, started
    )
    data = {"id": request_id, "invoice": {"id": invoice_id, **outcome}}
    message = f"{UPDATED} The invoice has been finalized.{sentence}"
    return responses.success_response(request, message, data=data)


@operation(
    "DELETE /api/einvoice-requests/{id}",
    "Delete an e-invoice request",
    "Success",
    message="E-invoice request deleted.",
    description="A finalized invoice keeps its buyer.",
)
async def delete_einvoice_request(request: web.Request) -> None:
    request_id = read_path_id(request, NOUN)
    async with company_transaction(request) as conn:
        await lock_record(request, conn, "einvoice_request", NOUN, request_id)
        await sql.einvoice_request_delete(conn, id=request_id)


async def _check_link(conn: Connection, link: int, body: str) -> None:
    """Lock a link, and raise Conflict unless it may have another pending request."""
    or_not_found(await sql.document_link_lock(conn, id=link), links.NOUN)
    found = await sql.einvoice_request_pending_of_link(conn, link_id=link, body=body)
    if found["pending"] >= MOST_PENDING:
        raise link_full()
    if found["is_of_buyer"]:
        raise buyer_waits()


def _repeats_approval(stored: Row, body: JsonObject) -> bool:
    """Return whether a body only approves a request whose approval has finalized an invoice."""
    was_approved = stored["status"] == "Approve" and stored["invoice_id"] is not None
    return was_approved and body == {"status": "Approve"}


async def _finalize(
    request: web.Request, conn: Connection, row: Row
) -> tuple[int, submit.Started | None] | None:
    """Finalize the invoice that a locked, approved request names.

    The requester becomes its buyer, or the supplier of a self-billed invoice, and other pending
    requests that name it are rejected. Returns the invoice's id and its submission, if one was
    prepared, or None if the request names no pending invoice. Raises Conflict.
    """
    company = request[app_keys.COMPANY]
    name = {"company_id": company, **{each: row[each] for each in ("invoice_code", "document_id")}}
    named = await sql.pending_invoice_lock_named(conn, **name)
    if len(named) > 1:
        raise ambiguous_code()
    if not named and row["invoice_id"] is None and await sql.invoice_with_requester(conn, **name):
        raise has_buyer()
    if not named or row["invoice_id"] not in (None, named[0]["id"]):
        return None
    invoice = await lock_document(conn, INVOICE, named[0]["id"])
    final_type, member = states.PENDING_FINALIZE[invoice["type"]]
    party = json_codec.loads(row["buyer"].encode())
    changes = {"type": final_type, member: party}
    started, _ = await documents.update_draft(request, conn, INVOICE, invoice, changes)
    await sql.einvoice_request_finalised(
        conn, id=row["id"], invoice_id=invoice["id"], reason=OTHER_BUYER
    )
    return invoice["id"], started


def _reject_wrong_buyer(body: JsonObject, at: datetime) -> None:
    """Raise ValidationError for a buyer whom preflight would report in an invoice.

    A person who enters their own data can correct it, so that a short postcode is a violation too.
    """
    if body["type"] == "GENERAL_PUBLIC":
        raise ValidationError([violation("/type", "named", UNNAMED)])
    buyer = {name: member for name, member in body.items() if name not in NOT_OF_BUYER}
    reject(
        [
            violation(finding.path, finding.code, finding.message)
            for finding in check_buyer(buyer, at)
            if not finding.is_warning or finding.code == SHORT_POSTCODE
        ]
    )


def _reject_too_large(record: JsonObject) -> None:
    reject(list(find_size_violations(record, json_codec.measure_stored_bytes(record))))


def _reject_too_large_merged(row: Row) -> None:
    """Raise ValidationError for an updated request that is too large. Rolls the update back."""
    buyer = json_codec.loads(row["buyer"].encode())
    _reject_too_large({"invoiceCode": row["invoice_code"], **buyer})
