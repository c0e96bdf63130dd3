"""The submitted documents of a company, across its invoices and notes."""

from aiohttp import web

from service.api import filters, pagination
from service.api.operation import Group, Operation
from service.api.records import page_response
from service.db.statements import sql
from service.documents import states
from service.http.access import read_own

GROUP = Group("Submitted documents")
FILTERS = (
    filters.some_of("status", tuple(states.SUBMITTED_TRANSITIONS), "SubmittedDocumentStatus"),
)


@Operation(
    GROUP,
    "GET /api/submitted-documents",
    "List the submitted documents of the company",
    "SubmittedDocumentList",
    query=(*pagination.PAGE, *FILTERS),
    description="Of all invoices, notes and consolidated invoices, newest first. "
    "`status=NotSent,Rejected,Invalid` lists the documents that did not become Valid.",
)
async def list_company_documents(request: web.Request) -> web.Response:
    page = pagination.read_page(request, FILTERS)
    statuses = page.filters["status"]
    row = await read_own(
        request,
        sql.submitted_document_list,
        statuses=statuses.split(",") if statuses else None,
        per_page=page.per_page,
        offset=page.offset,
    )
    return page_response(page, row)
