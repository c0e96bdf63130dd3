"""Creation of invoices. Spec: Invoices"""

from aiohttp import web

from service import schema
from service.api.documents import SUBMITS, Documents, in_consolidated_error
from service.api.filters import OWN_FILTERS, document_filters
from service.api.operation import Group
from service.db.statements import sql
from service.db.transactions import get_actor
from service.documents.body_checks import Draft, check_draft
from service.documents.kind import INVOICE
from service.errors import CONSTRAINTS
from service.http import app_keys
from service.http.access import company_transaction, zone_of
from service.http.idempotency import CLAIM, store_response
from service.http.requests import warn_of_doubts
from service.http.responses import success_response
from service.json_types import JsonObject, Row
from service.offload import offload
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.sending import submit

operation = GROUP = Group("Invoices", INVOICE.title)

CREATED = f"{INVOICE.title} created."
CODE_USED = CONSTRAINTS["invoices_code_once_a_year"]()
REFERENCE_USED = CONSTRAINTS["invoices_reference_once"]()
DOCUMENTS = Documents(
    GROUP,
    INVOICE,
    "/api/invoices",
    "Invoice",
    (*document_filters(schema.get_values("invoice_type"), "InvoiceType"), *OWN_FILTERS),
    get=sql.invoice_get,
    update_errors=(in_consolidated_error(), CODE_USED, REFERENCE_USED),
)


@operation(
    "POST /api/invoices",
    "Create an invoice",
    "Stored",
    message=CREATED,
    body="invoice_create",
    errors=(CODE_USED, REFERENCE_USED),
    description=SUBMITS,
)
async def create_invoice(request: web.Request, body: JsonObject) -> web.Response:
    """Store a draft invoice and, if the body or the company asks for it, submit it.

    Raises ValidationError, also if the code is already used in that year. A failed submission does
    not fail the creation: `message` and `data` describe its outcome. Spec: Invoices
    """
    draft = await offload(len(request[app_keys.BODY]), check_draft, INVOICE, body)
    # The parsed bodies of all requests in progress would not fit into the caches of the processor.
    del body
    company, context = request[app_keys.COMPANY], request.app[SUBMISSION_CONTEXT]
    columns = draft.new_columns(zone_of(request))
    values = {"company_id": company, **columns, **get_actor()}
    if CLAIM not in request and draft.submission == "none":
        row = await request.app[app_keys.DATABASE].write(sql.document_insert, **values)
        return _created(request, draft, row)
    async with company_transaction(request) as conn:
        row = await sql.document_insert(conn, **values)
        created = _created(request, draft, row)
        started = await submit.start_if_requested(
            context, conn, company, row["id"], draft.submission
        )
        await store_response(request, conn, created, is_interim=started is not None)
    sentence, outcome = await submit.describe_outcome(context, row["id"], started)
    data = {"id": row["id"], **outcome}
    return success_response(request, f"{CREATED}{sentence}", 201, data=data)


def _created(request: web.Request, draft: Draft, row: Row) -> web.Response:
    """Return the response for a stored draft, with a warning for what is probably wrong."""
    warn_of_doubts(request, draft.doubts, row)
    return success_response(request, CREATED, 201, data={"id": row["id"]})
