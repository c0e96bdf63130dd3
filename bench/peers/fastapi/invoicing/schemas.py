"""The bodies of requests and responses."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, model_validator
from pydantic.alias_generators import to_camel

InvoiceType = Literal[
    "INVOICE",
    "SELF_BILLED_INVOICE",
    "PENDING_FINALIZE_INVOICE",
    "PENDING_FINALIZE_SELF_BILLED_INVOICE",
]


def _assume_utc(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _format_instant(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _text(length: int) -> Any:
    return Field(max_length=length)


Number = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]
Money = Annotated[Number, Field(ge=0, le=999_999_999_999)]
Percentage = Annotated[Number, Field(ge=0, le=1000)]
Text = Annotated[str, Field(max_length=300, pattern=r"\S")]
Instant = Annotated[datetime, AfterValidator(_assume_utc)]
Timestamp = Annotated[datetime, PlainSerializer(_format_instant, return_type=str)]


class Body(BaseModel):
    """A part of a request in camel case, which keeps unlisted members."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")


class Address(Body):
    line1: Annotated[str, _text(150)] | None = None
    line2: Annotated[str, _text(150)] | None = None
    line3: Annotated[str, _text(150)] | None = None
    city: Annotated[str, _text(50)] | None = None
    state: Annotated[str, _text(50)] | None = None
    zip_code: Annotated[str, _text(50)] | None = None
    country: Annotated[str, _text(60)] | None = None


class Registration(Body):
    type: str | None = None
    number: Annotated[str, _text(40)] | None = None


class Party(Body):
    type: str | None = None
    name: Text | None = None
    tin: Annotated[str, _text(40)] | None = None
    registration: Registration | None = None
    contact_number: Annotated[str, _text(40)] | None = None
    email: Annotated[str, _text(320)] | None = None
    sst_registration_number: Annotated[str, _text(35)] | None = None
    msic: Annotated[str, Field(pattern=r"^[0-9]{5}$")] | None = None
    business_activity_description: Annotated[str, _text(300)] | None = None
    tourism_tax_registration_number: Annotated[str, _text(17)] | None = None
    address: Address | None = None


class LineAdjustment(Body):
    """A discount or charge of a line: an amount or a percentage."""

    amount: Money | None = None
    rate: Percentage | None = None
    reason: Annotated[str, _text(300)] | None = None

    @model_validator(mode="after")
    def check_amount(self) -> Self:
        """Require exactly one of amount and rate."""
        if (self.amount is None) == (self.rate is None):
            raise ValueError("Exactly one of amount and rate is required.")
        return self


class TaxRate(Body):
    percentage: Percentage | None = None
    per_unit_amount: Money | None = None
    unit_count: Money | None = None


class TaxDetail(Body):
    tax_type: str
    tax_rate: TaxRate = TaxRate()


class Unit(Body):
    code: Annotated[str, Field(pattern=r"^[A-Z0-9]{1,3}$")] | None = None
    price: Money
    count: Money


class LineItem(Body):
    id: Annotated[str, _text(50)] | None = None
    description: Text
    classifications: Annotated[list[str], Field(min_length=1, max_length=45)] | None = None
    unit: Unit
    tax_details: Annotated[list[TaxDetail], Field(max_length=20)] = Field(default_factory=list)
    tax_exemption_reason: Annotated[str, _text(300)] | None = None
    origin_country: Annotated[str, _text(60)] | None = None
    tariff_code: Annotated[str, Field(pattern=r"^[A-Za-z0-9.]+$", max_length=12)] | None = None
    discount: LineAdjustment | None = None
    charge: LineAdjustment | None = None


class DocumentAdjustment(Body):
    """An allowance or charge of the whole document."""

    amount: Money
    reason: Annotated[str, _text(300)] | None = None


class DocumentAdjustments(Body):
    """The allowances and charges of the whole document."""

    allowances: Annotated[list[DocumentAdjustment], Field(max_length=100)] = Field(
        default_factory=list
    )
    charges: Annotated[list[DocumentAdjustment], Field(max_length=100)] = Field(
        default_factory=list
    )


class InvoiceCreate(Body):
    """The body of POST /api/invoices."""

    model_config = ConfigDict(extra="forbid")

    type: InvoiceType
    code: Annotated[int, Field(ge=1, le=999_999_999_999)]
    issue_date_time: Instant
    buyer: Party | None = None
    supplier: Party | None = None
    line_items: Annotated[list[LineItem], Field(min_length=1, max_length=1000)]
    is_ready: bool = False
    invoice_level_allowance_charge: DocumentAdjustments | None = None
    currency_code: Annotated[str, _text(60)] = "MYR"
    exchange_rate: Annotated[Number, Field(gt=0, le=1_000_000_000)] | None = None
    payment: dict[str, Any] | None = None
    delivery: dict[str, Any] | None = None
    billing_period: dict[str, Any] | None = None
    references: Annotated[list[dict[str, Any]], Field(max_length=100)] | None = None
    reference: Annotated[str, _text(100)] | None = None
    metadata: dict[str, Annotated[str, _text(500)]] | None = Field(default=None, max_length=50)

    @model_validator(mode="after")
    def check_members(self) -> Self:
        """Require the members that follow from the type and the currency."""
        if self.type == "INVOICE" and self.buyer is None:
            raise ValueError("buyer is required.")
        if self.type == "SELF_BILLED_INVOICE" and self.supplier is None:
            raise ValueError("supplier is required.")
        if self.currency_code != "MYR" and self.exchange_rate is None:
            raise ValueError("exchangeRate is required.")
        return self


class Totals(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    excluding_tax: Number
    including_tax: Number
    payable_amount: Number
    net_amount: Number


class InvoiceRecord(BaseModel):
    """An invoice as it is returned."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    company_id: int
    is_submitted_to_portal: bool
    is_ready: bool
    invoice_code: str
    type: str
    buyer: dict[str, Any] | None
    supplier: dict[str, Any] | None
    line_items: list[Any]
    final_adjusted_amount: Number
    status: str
    legal_monetary_total: Totals
    issue_date: Timestamp
    invoice_level_allowance_charge: dict[str, Any] | None
    currency_code: str
    exchange_rate: Number | None
    created_at: Timestamp
    updated_at: Timestamp
    consolidated_invoice_id: int | None
    payment: dict[str, Any] | None
    delivery: dict[str, Any] | None
    billing_period: dict[str, Any] | None
    references: list[Any] | None = Field(validation_alias="document_references")
    prepayment: dict[str, Any] | None
    payable_rounding_amount: Number | None
    reference: str | None
    metadata: dict[str, Any] | None = Field(validation_alias="document_metadata")
    last_submission: dict[str, Any] | None


class PageMeta(BaseModel):
    total: int
    per_page: int
    current_page: int
    last_page: int
    first_page: int = 1
    first_page_url: str
    last_page_url: str
    next_page_url: str | None
    previous_page_url: str | None


class InvoiceList(BaseModel):
    meta: PageMeta
    data: list[InvoiceRecord]


class InvoiceExport(BaseModel):
    """An invoice as it is exported."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    invoice_code_with_prefix_and_digits: str
    invoice_code: str
    buyer: dict[str, Any] | None
    supplier: dict[str, Any] | None
    line_items: list[Any]
    invoice_date_time: Timestamp
    invoice_level_allowance_charge: dict[str, Any] | None
    consolidated_invoice_code: str | None = None
    created_at: Timestamp
    payment: dict[str, Any] | None
    delivery: dict[str, Any] | None
    billing_period: dict[str, Any] | None
    references: list[Any] | None
    prepayment: dict[str, Any] | None
    payable_rounding_amount: Number | None


class CreatedData(BaseModel):
    id: int


class Created(BaseModel):
    """The response to a creation."""

    success: bool = True
    message: str = "Invoice created."
    data: CreatedData
