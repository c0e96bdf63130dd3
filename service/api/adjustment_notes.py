"""Adjustment notes: creation for invoices of both kinds.

Spec: Adjustment notes
"""

from functools import partial

from aiohttp import web

from service import schema
from service.api import documents
from service.api.documents import Documents
from service.api.filters import OWN_FILTERS, document_filters
from service.api.operation import Group
from service.api.records import store_created
from service.db.connections import Connection
from service.db.statements import sql
from service.db.transactions import get_actor
from service.documents import states
from service.documents.body_checks import check_draft
from service.documents.consolidation import find_misclassified_lines
from service.documents.kind import CONSOLIDATED, NOTE, DocumentKind
from service.errors import CONSTRAINTS, Forbidden, ValidationError, reject, violation
from service.http import app_keys
from service.http.access import company_transaction, zone_of
from service.http.requests import or_not_found, read_path_id, warn_of_doubts
from service.json_types import JsonObject, Row
from service.offload import offload
from service.submission.machine.failures import refuse_note

operation = GROUP = Group("Adjustment notes", NOTE.title)

CREATED = f"{NOTE.title} created."
CODE_USED = CONSTRAINTS["adjustment_notes_code_once_a_type"]()
REFERENCE_USED = CONSTRAINTS["adjustment_notes_reference_once"]()
DOCUMENTS = Documents(
    GROUP,
    NOTE,
    "/api/adjustment-notes",
    "AdjustmentNote",
    (*document_filters(schema.get_values("note_type"), "NoteType"), *OWN_FILTERS),
    get=sql.adjustment_note_get,
    cancelling="cancel-latest-adjustment-note-submitted",
    update_errors=(CODE_USED, REFERENCE_USED),
    submit_errors=(refuse_note(),),
)


def _refuse_note(code: str) -> Forbidden:
    return Forbidden(states.NOTE_MESSAGES[code], code=code)


def declare_note_creation(invoices: Documents) -> None:
    invoices.operation(
        f"POST {invoices.record_path}/adjustment-note",
        f"Create an adjustment note for {invoices.kind.with_article}",
        "Created",
        message=CREATED,
        body="adjustment_note_create",
        errors=(*map(_refuse_note, states.NOTE_MESSAGES), CODE_USED, REFERENCE_USED),
        description=f"The latest submitted document of the {invoices.kind.noun} must be Valid.",
        name=f"create_adjustment_note_of_{invoices.kind.name}",
    )(partial(create_adjustment_note, invoices.kind))


async def create_adjustment_note(
    kind: DocumentKind, request: web.Request, body: JsonObject
) -> web.Response:
    """Store a draft note for an invoice whose latest submitted document is Valid.

    Locks the invoice, so that it cannot be cancelled meanwhile. Raises Forbidden by
    states.NOTE_REFUSALS, ValidationError for a note that does not match its invoice. The lines of
    a note for a consolidated invoice must have its classification.
    """
    draft = await offload(len(request[app_keys.BODY]), check_draft, NOTE, body)
    target_id = read_path_id(request, kind.title)
    columns = draft.new_columns(zone_of(request), **{f"{kind.name}_id": target_id})
    async with company_transaction(request) as conn:
        target = await sql.document_share(conn, id=target_id, kind=kind.name)
        or_not_found(target, kind.title)
        if kind is CONSOLIDATED:
            reject(find_misclassified_lines(body["lineItems"]))
        await _check_target(conn, target, body["targetInvoiceType"])
        documents.reject_excess(target["final_adjusted_amount"], draft)
        row = await sql.document_insert(conn, **columns, **get_actor())
        warn_of_doubts(request, draft.doubts, row)
        return await store_created(request, conn, CREATED, {"id": row["id"]})


async def _check_target(conn: Connection, target: Row, target_type: str) -> None:
    """Raise Forbidden or ValidationError for a locked target that the note must not have."""
    latest = await sql.submitted_document_latest(conn, document_id=target["id"])
    if code := states.find_refusal(states.NOTE_REFUSALS, latest):
        raise _refuse_note(code)
    if target_type != target["type"]:
        message = f"targetInvoiceType must be the type of the invoice, {target['type']}."
        raise ValidationError([violation("/targetInvoiceType", "target", message)])
