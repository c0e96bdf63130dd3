"""The tables of the schema `peers`."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, DateTime, ForeignKey, Identity, Numeric, SmallInteger, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SUBMITTED = {"Submitting", "Submitted", "Valid"}


class Base(DeclarativeBase):
    """The base of the models."""

    type_annotation_map = {  # noqa: RUF012
        int: BigInteger,
        Decimal: Numeric(20, 2),
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
    }


class Company(Base):
    """A company, which is the supplier of its invoices."""

    __tablename__ = "companies"
    __table_args__ = {"schema": "peers"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(primary_key=True)
    prefix: Mapped[str]
    prefix_digits: Mapped[int]
    party: Mapped[dict[str, Any]]


class ApiKey(Base):
    """The digest of an API key."""

    __tablename__ = "api_keys"
    __table_args__ = {"schema": "peers"}  # noqa: RUF012

    key_sha256: Mapped[bytes] = mapped_column(primary_key=True)
    company_id: Mapped[int] = mapped_column(ForeignKey("peers.companies.id"))


class Invoice(Base):
    """An invoice."""

    __tablename__ = "invoices"
    __table_args__ = {"schema": "peers"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    company_id: Mapped[int] = mapped_column(ForeignKey("peers.companies.id"))
    code: Mapped[int]
    code_year: Mapped[int] = mapped_column(SmallInteger)
    type: Mapped[str]
    status: Mapped[str] = mapped_column(default="Draft")
    is_ready: Mapped[bool] = mapped_column(default=False)
    issue_date: Mapped[datetime]
    buyer: Mapped[dict[str, Any] | None]
    supplier: Mapped[dict[str, Any] | None]
    line_items: Mapped[list[Any]]
    invoice_level_allowance_charge: Mapped[dict[str, Any] | None]
    currency_code: Mapped[str] = mapped_column(default="MYR")
    exchange_rate: Mapped[Decimal | None] = mapped_column(Numeric)
    net_amount: Mapped[Decimal]
    excluding_tax: Mapped[Decimal]
    including_tax: Mapped[Decimal]
    payable_amount: Mapped[Decimal]
    adjusted_by: Mapped[Decimal] = mapped_column(default=Decimal(0))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    consolidated_invoice_id: Mapped[int | None]
    payment: Mapped[dict[str, Any] | None]
    delivery: Mapped[dict[str, Any] | None]
    billing_period: Mapped[dict[str, Any] | None]
    document_references: Mapped[list[Any] | None]
    prepayment: Mapped[dict[str, Any] | None]
    payable_rounding_amount: Mapped[Decimal | None]
    reference: Mapped[str | None]
    document_metadata: Mapped[dict[str, Any] | None] = mapped_column("metadata")
    last_submission: Mapped[dict[str, Any] | None]

    @property
    def invoice_code(self) -> str:
        """The code as text."""
        return str(self.code)

    @property
    def is_submitted_to_portal(self) -> bool:
        """Return whether the portal has the invoice or is being sent it."""
        return self.status in SUBMITTED

    @property
    def final_adjusted_amount(self) -> Decimal:
        """The amount to pay after notes."""
        return self.payable_amount + self.adjusted_by

    @property
    def legal_monetary_total(self) -> dict[str, Decimal]:
        """The totals as one object."""
        return {
            "excludingTax": self.excluding_tax,
            "includingTax": self.including_tax,
            "payableAmount": self.payable_amount,
            "netAmount": self.net_amount,
        }
