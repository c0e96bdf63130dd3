"""Invoices: create, list, get, update, delete, export. Spec: Invoices"""

from functools import partial
from typing import Any, NamedTuple

import asyncpg
from aiohttp import web

from service import json_codec, schema
from service.api import links, printing, submissions
from service.api.adjustment_notes import declare_note_creation
from service.api.filters import OWN_FILTERS, document_filters
from service.api.operation import REPLACES, Operation
from service.api.records import Documents, Source, declare_export, declare_reading
from service.db.audit_actor import get_actor
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import states
from service.documents.body_checks import Draft, check_draft, get_code_year
from service.documents.doubts import Doubt
from service.errors import CONSTRAINTS, Conflict, Forbidden, ValidationError
from service.http import app_keys, responses
from service.http.idempotency import CLAIM, store_response
from service.http.requests import (
    check_if_match,
    or_not_found,
    parse_document_instant,
    read_body,
    read_path_id,
    warn_of_doubts,
    warn_of_removed,
)
from service.offload import offload
from service.submission import submit
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.document_kinds import INVOICE

NOUN = INVOICE.title
operations: list[Operation] = []
operation = partial(Operation, operations, "Invoices", noun=NOUN)

DOCUMENTS = Documents(
    INVOICE,
    "/api/invoices",
    "Invoice",
    (*document_filters(schema.get_values("invoice_type"), "InvoiceType"), *OWN_FILTERS),
    Source(sql.invoice_page, sql.invoice_search, sql.invoice_get),
    get=sql.invoice_get,
    export=sql.invoice_export,
    export_batch=sql.invoice_export_batch,
)


class NewInvoice(NamedTuple):
    """A checked draft that is to be stored.

    `body` and `columns` are the JSON texts of the body and of the computed columns.
    """

    body: str
    columns: str
    submission: submit.SubmissionRequest
    doubts: list[Doubt]

    def texts(self) -> dict[str, str]:
        """Return the values of the statement that stores it."""
        return {"body": self.body, "columns": self.columns}


CREATED, UPDATED, DELETED = "Invoice created.", "Invoice updated.", "Invoice deleted."
NOT_UPDATED = states.describe_locked(INVOICE.noun, "updated")
NOT_DELETED = states.describe_locked(INVOICE.noun, "deleted")
CODE_USED = CONSTRAINTS["invoices_code_once_a_year"]()
REFERENCE_USED = CONSTRAINTS["invoices_reference_once"]()
locked = partial(Forbidden, code="already_submitted")
SUBMITS = (
    "`submitImmediately` submits the document within the request. `isReady` submits it in the "
    "background if the company's setting AUTO_SUBMIT_INVOICE is on. A failed submission does not "
    "fail the request: `message` and `data` describe its outcome."
)
in_consolidated = partial(
    Conflict,
    "The invoice is part of a consolidated invoice; delete or cancel that first.",
    code="in_consolidated_invoice",
)


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
            sql.invoice_insert, company_id=company, **invoice.texts(), **get_actor()
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
    body, text = await read_body(request, "invoice_create")
    issue_date = parse_document_instant(body, "issueDateTime")
    draft = await offload(len(text), check_draft, body, issue_date, len(text))
    computed = {
        "code_year": _get_code_year(request, draft),
        "issue_date": issue_date,
        **draft.amounts,
        "taxes": draft.taxes,
    }
    return NewInvoice(
        json_codec.compact(text, body),
        json_codec.dumps(computed),
        submit.read_submission_request(body),
        draft.doubts,
    )


async def _store_with_effects(
    request: web.Request, invoice: NewInvoice
) -> tuple[int, submit.Started | None]:
    """Store a draft with the submission that it asks for and the response to a repetition."""
    company, context = request[app_keys.COMPANY], request.app[SUBMISSION_CONTEXT]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await sql.invoice_insert(conn, company_id=company, **invoice.texts(), **get_actor())
        warn_of_doubts(request, invoice.doubts, row)
        invoice_id = row["id"]
        started = await submit.start_if_requested(
            context, conn, company, invoice_id, invoice.submission
        )
        response = responses.created_response(
            CREATED, invoice_id, warnings=request.get(app_keys.WARNINGS)
        )
        await store_response(request, conn, response)
    return invoice_id, started


declare_reading(
    operation, DOCUMENTS, everything="Every invoice of the company, newest first, without pages."
)


@operation(
    "PUT",
    "/api/invoices/{id}",
    "Update an invoice",
    "Stored",
    message=UPDATED,
    body="invoice_update",
    errors=(
        locked(NOT_UPDATED),
        in_consolidated(),
        CODE_USED,
    ),
    description=f"{REPLACES} {SUBMITS}",
)
async def update_invoice(request: web.Request) -> web.Response:
    """Merge the sent members into a draft, and submit it if the body or the company asks for it.

    Raises Forbidden for a submitted invoice. Spec: Invoices
    """
    body, _ = await read_body(request, "invoice_update")
    company, invoice_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, invoice_id)
        if row["status"] in states.LOCKED:
            raise locked(NOT_UPDATED)
        await warn_of_removed(request, row["body"], body)
        started, doubts = await update_draft(request, conn, row, body)
        warn_of_doubts(request, doubts, row)
    sentence, outcome = await submit.describe_outcome(
        request.app[SUBMISSION_CONTEXT], company, invoice_id, started
    )
    data = {"id": invoice_id, **outcome}
    return responses.success_response(
        f"{UPDATED}{sentence}", data=data, warnings=request.get(app_keys.WARNINGS)
    )


async def update_draft(
    request: web.Request, conn: Connection, row: asyncpg.Record, changes: dict[str, Any]
) -> tuple[submit.Started | None, list[Doubt]]:
    """Merge changes into a locked draft, and prepare the submission that it then asks for.

    Return the submission and the doubts of the merged draft.

    Raises Conflict for an invoice in a consolidated invoice, ValidationError if the merged invoice
    is invalid.
    """
    _reject_consolidated(row)
    company, invoice_id = request[app_keys.COMPANY], row["id"]
    draft, text = await offload(len(row["body"]), _merge, row, changes)
    await sql.invoice_update(
        conn,
        company_id=company,
        id=invoice_id,
        body=text,
        code_year=_get_code_year(request, draft),
        issue_date=draft.issue_date,
        **draft.columns,
    )
    started = await submit.start_if_requested(
        request.app[SUBMISSION_CONTEXT],
        conn,
        company,
        invoice_id,
        submit.read_submission_request(draft.body),
    )
    return started, draft.doubts


@operation(
    "DELETE",
    "/api/invoices/{id}",
    "Delete an invoice",
    "Success",
    message=DELETED,
    errors=(
        locked(NOT_DELETED),
        in_consolidated(),
    ),
    description="Frees its code.",
)
async def delete_invoice(request: web.Request) -> web.Response:
    """Hide an invoice that is not submitted, and free its code. Spec: Errors"""
    company, invoice_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, invoice_id)
        if row["status"] in states.LOCKED:
            raise locked(NOT_DELETED)
        _reject_consolidated(row)
        await sql.invoice_delete(conn, company_id=company, id=invoice_id)
    return responses.success_response(DELETED)


submissions.declare(operation, DOCUMENTS)
printing.declare(operation, DOCUMENTS)
links.declare(operation, DOCUMENTS)
declare_note_creation(
    operation, DOCUMENTS, description="The latest submitted document of the invoice must be Valid."
)
declare_export(operation, DOCUMENTS)


async def _lock(request: web.Request, conn: Connection, invoice_id: int) -> asyncpg.Record:
    """Lock an invoice. Raises NotFound, and PreconditionFailed if If-Match does not match."""
    company = request[app_keys.COMPANY]
    row = or_not_found(await sql.invoice_lock(conn, company_id=company, id=invoice_id), NOUN)
    await check_if_match(request, conn, sql.invoice_get, company_id=company, id=invoice_id)
    return row


def _reject_consolidated(row: asyncpg.Record) -> None:
    if row["consolidated_invoice_id"]:
        raise in_consolidated()


def _get_code_year(request: web.Request, draft: Draft) -> int:
    return get_code_year(draft.issue_date, request.app[app_keys.CONFIG].time_zone)


def _merge(row: asyncpg.Record, changes: dict[str, Any]) -> tuple[Draft, str]:
    """Return the Draft of a stored invoice with changes, and its JSON text.

    Raises ValidationError if the merged invoice breaks a rule of creation.
    """
    body = {**json_codec.stored_body(row), **changes}
    if violations := schema.find_violations("invoice_create", body):
        raise ValidationError(violations)
    issued = (
        parse_document_instant(body, "issueDateTime")
        if "issueDateTime" in changes
        else row["issue_date"]
    )
    text = json_codec.dumps(body)
    return check_draft(body, issued, len(text)), text
