"""The application: create, list, get and export invoices."""

from collections.abc import AsyncIterator
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import TypeAdapter
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from .amounts import compute_amounts
from .auth import CompanyDep
from .database import SessionDep, new_session
from .models import Company, Invoice
from .schemas import (
    Created,
    CreatedData,
    InvoiceCreate,
    InvoiceExport,
    InvoiceList,
    InvoiceRecord,
    PageMeta,
)

TIME_ZONE = ZoneInfo("Asia/Kuala_Lumpur")
BATCH = 500  # invoices that are exported at a time
CODE_USED = {
    "path": "/code",
    "rule": "unique",
    "message": "The code has already been used this year.",
}
INVALID = "The request is invalid."

app = FastAPI(title="Invoicing", docs_url=None, redoc_url=None)
exports = TypeAdapter(list[InvoiceExport])


def reject(errors: list[dict[str, Any]]) -> JSONResponse:
    """Return a 422 with its errors."""
    return JSONResponse({"success": False, "message": INVALID, "errors": errors}, 422)


@app.exception_handler(RequestValidationError)
async def reject_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    """Return the errors of a request in the form of the API."""
    return reject(
        [
            {
                "path": "/" + "/".join(map(str, found["loc"][1:])),
                "rule": found["type"],
                "message": found["msg"],
            }
            for found in error.errors()
        ]
    )


@app.get("/readyz")
async def is_ready() -> dict[str, bool]:
    """Answer once the application runs."""
    return {"ready": True}


@app.post("/api/invoices", status_code=201, response_model=Created)
async def create_invoice(
    body: InvoiceCreate, company: CompanyDep, session: SessionDep
) -> Created | JSONResponse:
    """Store a draft invoice."""
    try:
        amounts = compute_amounts(body)
    except ValueError as error:
        return reject([{"path": "/lineItems", "rule": "amount", "message": str(error)}])
    stored = body.model_dump(mode="json", by_alias=True, exclude_unset=True)
    invoice = Invoice(
        company_id=company,
        code=body.code,
        code_year=body.issue_date_time.astimezone(TIME_ZONE).year,
        type=body.type,
        is_ready=body.is_ready,
        issue_date=body.issue_date_time,
        buyer=stored.get("buyer"),
        supplier=stored.get("supplier"),
        line_items=stored["lineItems"],
        invoice_level_allowance_charge=stored.get("invoiceLevelAllowanceCharge"),
        currency_code=body.currency_code,
        exchange_rate=body.exchange_rate,
        payment=body.payment,
        delivery=body.delivery,
        billing_period=body.billing_period,
        document_references=body.references,
        reference=body.reference,
        document_metadata=body.metadata,
        **amounts,
    )
    session.add(invoice)
    try:
        await session.commit()
    except IntegrityError:
        return reject([CODE_USED])
    return Created(data=CreatedData(id=invoice.id))


@app.get("/api/invoices", response_model=InvoiceList)
async def list_invoices(
    company: CompanyDep,
    session: SessionDep,
    page: Annotated[int, Query(ge=1)] = 1,
    per_page: Annotated[int, Query(ge=1, le=100)] = 10,
) -> InvoiceList:
    """Return a page of invoices, newest first."""
    total = await session.scalar(
        select(func.count()).select_from(Invoice).where(Invoice.company_id == company)
    )
    invoices = await session.scalars(
        select(Invoice)
        .where(Invoice.company_id == company)
        .order_by(Invoice.id.desc())
        .limit(per_page)
        .offset((page - 1) * per_page)
    )
    data = [InvoiceRecord.model_validate(invoice) for invoice in invoices]
    return InvoiceList(meta=describe_page(total or 0, page, per_page), data=data)


def describe_page(total: int, page: int, per_page: int) -> PageMeta:
    """Return the pagination of a page."""
    last = max(1, -(-total // per_page))

    def url(number: int) -> str:
        return f"/api/invoices?page={number}&per_page={per_page}"

    return PageMeta(
        total=total,
        per_page=per_page,
        current_page=page,
        last_page=last,
        first_page_url=url(1),
        last_page_url=url(last),
        next_page_url=url(page + 1) if page < last else None,
        previous_page_url=url(min(page - 1, last)) if page > 1 else None,
    )


@app.get("/api/invoices/export-all")
async def export_invoices(company: CompanyDep) -> StreamingResponse:
    """Stream all invoices as one JSON array, newest first."""
    headers = {"Content-Disposition": 'attachment; filename="invoices.json"'}
    return StreamingResponse(write_exports(company), media_type="application/json", headers=headers)


async def write_exports(company: int) -> AsyncIterator[bytes]:
    """Yield the text of the export in batches, each of which is one query."""
    start, before = b"[", 2**63 - 1
    async with new_session() as session:
        owner = await session.get_one(Company, company)
    while True:
        async with new_session() as session:
            found = await session.scalars(
                select(Invoice)
                .where(Invoice.company_id == company, Invoice.id < before)
                .order_by(Invoice.id.desc())
                .limit(BATCH)
            )
            invoices = found.all()
        if not invoices:
            break
        yield start + exports.dump_json([describe(i, owner) for i in invoices], by_alias=True)[1:-1]
        start, before = b",", invoices[-1].id
    yield b"[]" if start == b"[" else b"]"


def describe(invoice: Invoice, owner: Company) -> InvoiceExport:
    """Return an invoice of a company as it is exported."""
    code, is_self_billed = str(invoice.code), "SELF_BILLED" in invoice.type
    return InvoiceExport(
        invoice_code_with_prefix_and_digits=owner.prefix + code.zfill(owner.prefix_digits),
        invoice_code=code,
        buyer=owner.party if is_self_billed else invoice.buyer,
        supplier=invoice.supplier if is_self_billed else owner.party,
        line_items=invoice.line_items,
        invoice_date_time=invoice.issue_date,
        invoice_level_allowance_charge=invoice.invoice_level_allowance_charge,
        created_at=invoice.created_at,
        payment=invoice.payment,
        delivery=invoice.delivery,
        billing_period=invoice.billing_period,
        references=invoice.document_references,
        prepayment=invoice.prepayment,
        payable_rounding_amount=invoice.payable_rounding_amount,
    )


@app.get("/api/invoices/{invoice_id}", response_model=InvoiceRecord)
async def get_invoice(invoice_id: int, company: CompanyDep, session: SessionDep) -> Invoice:
    """Return an invoice."""
    invoice = await session.scalar(
        select(Invoice).where(Invoice.id == invoice_id, Invoice.company_id == company)
    )
    if invoice is None:
        raise HTTPException(404, "Invoice not found.")
    return invoice
