"""Invoices: create, and what all documents have. Spec: Invoices"""

from functools import partial
from typing import NamedTuple

from aiohttp import web

from service import schema
from service.api import documents, links, printing, submissions
from service.api.adjustment_notes import declare_note_creation
from service.api.documents import SUBMITS, Documents, in_consolidated_error
from service.api.filters import OWN_FILTERS, document_filters
from service.api.operation import Operation
from service.api.records import store_created
from service.db.audit_actor import get_actor
from service.db.statements import sql
from service.documents.doubts import Doubt
from service.documents.kind import INVOICE
from service.errors import CONSTRAINTS
from service.http import app_keys, responses
from service.http.access import company_transaction
from service.http.idempotency import CLAIM
from service.http.requests import warn_of_doubts
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.sending import submit

operations: list[Operation] = []
operation = partial(Operation, operations, "Invoices", noun=INVOICE.title)

DOCUMENTS = Documents(
    INVOICE,
    "/api/invoices",
    "Invoice",
    (*document_filters(schema.get_values("invoice_type"), "InvoiceType"), *OWN_FILTERS),
    get=sql.invoice_get,
)
CREATED = documents.describe_done(INVOICE, "created")
CODE_USED = CONSTRAINTS["invoices_code_once_a_year"]()
REFERENCE_USED = CONSTRAINTS["invoices_reference_once"]()


class NewInvoice(NamedTuple):
    """A checked draft that is to be stored.

    `body` and `columns` are the JSON texts of the body and of the computed columns.
    """

    body: str
    columns: str
    submission: submit.SubmissionRequest
    doubts: list[Doubt]


@operation(
    "POST",
    "/api/invoices",
    "Create an invoice",
    "Stored",
    status=201,
    message=CREATED,
    body="invoice_create",
    errors=(CODE_USED, REFERENCE_USED),
    description=SUBMITS,
)
async def create_invoice(request: web.Request) -> web.Response:
    """Store a draft invoice and, if the body or the company asks for it, submit it.

    Raises ValidationError, also if the code is already used in that year. A failed submission does
    not fail the creation: `message` and `data` describe its outcome. Spec: Invoices
    """
    invoice = await _read_invoice(request)
    company, started = request[app_keys.COMPANY], None
    if CLAIM in request or invoice.submission.is_possible:
        invoice_id, started = await _store_with_effects(request, invoice)
    else:
        row = await request.app[app_keys.DATABASE].write(
            sql.document_insert,
            company_id=company,
            body=invoice.body,
            columns=invoice.columns,
            **get_actor(),
        )
        warn_of_doubts(request, invoice.doubts, row)
        invoice_id = row["id"]
    sentence, outcome = await submit.describe_outcome(
        request.app[SUBMISSION_CONTEXT], company, invoice_id, started
    )
    return responses.success_response(
        f"{CREATED}{sentence}",
        201,
        data={"id": invoice_id, **outcome},
        warnings=request.get(app_keys.WARNINGS),
    )


async def _read_invoice(request: web.Request) -> NewInvoice:
    """Return the invoice of a creation request. Raises ValidationError.

    The parsed body is released when this function returns. If it were kept until the draft is
    stored, those of all requests in progress would not fit into the caches of the processor.
    """
    draft, text = await documents.read_draft(request, INVOICE)
    columns = documents.make_columns(request, INVOICE, draft)
    return NewInvoice(text, columns, submit.read_submission_request(draft.body), draft.doubts)


async def _store_with_effects(
    request: web.Request, invoice: NewInvoice
) -> tuple[int, submit.Started | None]:
    """Store a draft with the submission that it asks for and the response to a repetition."""
    company, context = request[app_keys.COMPANY], request.app[SUBMISSION_CONTEXT]
    async with company_transaction(request) as conn:
        row = await documents.insert_document(conn, company, invoice.body, invoice.columns)
        warn_of_doubts(request, invoice.doubts, row)
        invoice_id = row["id"]
        started = await submit.start_if_requested(
            context, conn, company, invoice_id, invoice.submission
        )
        await store_created(request, conn, CREATED, invoice_id)
    return invoice_id, started


documents.declare_reading(operation, DOCUMENTS)
documents.declare_update(operation, DOCUMENTS, (in_consolidated_error(), CODE_USED, REFERENCE_USED))
documents.declare_deletion(operation, DOCUMENTS)
submissions.declare(operation, DOCUMENTS)
printing.declare(operation, DOCUMENTS)
links.declare(operation, DOCUMENTS)
declare_note_creation(
    operation, DOCUMENTS, description="The latest submitted document of the invoice must be Valid."
)
documents.declare_export(operation, DOCUMENTS)
