"""Prepare the printed page of a document: its facts, labels and formatted numbers.

The page of a submitted document is read from the bytes that were sent (ubl/reader.py), the page of
any other document from the stored record. Amounts stay Decimals until they are formatted.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import NamedTuple

from service import json_codec
from service.documents.codes import get_names
from service.documents.money import (
    EXACT,
    Adjustment,
    Tax,
    TaxRate,
    Totals,
    compute_document,
    count_decimals,
    read_adjustments,
    round_cents,
    sum_taxes,
)
from service.documents.ubl import document
from service.documents.ubl.elements import get_object
from service.documents.ubl.parties import STATE_ABROAD, is_abroad
from service.json_types import JsonMapping, JsonObject


class Printout(NamedTuple):
    """The content of a page.

    `kind` is the portal's document type; parties and items have the request shape. `originals` of a
    note are [{number, uuid}]; `allowances` and `charges` apply to the whole document; `terms` are
    (label, text) of its payment, period, delivery and bills.
    """

    kind: str
    currency: str
    exchange_rate: Decimal | None
    originals: Sequence[Mapping[str, str]]
    supplier: JsonMapping
    buyer: JsonMapping
    items: Sequence[JsonMapping]
    allowances: list[Adjustment]
    charges: list[Adjustment]
    sums: Totals
    terms: list[tuple[str, str]]

    @property
    def adjusts_lines(self) -> bool:
        """True if a line has a discount or a charge, which the table shows in a column."""
        return any(line.discount or line.charge for line in self.sums.lines)

    @property
    def tax_rows(self) -> list[tuple[str, Decimal, Decimal]]:
        """Return (label, taxable amount, tax) of each tax type and rate over all lines.

        Types and rates are in the order of the lines, and sum to the document's total tax.
        """
        totals = sum_taxes(self.sums.lines, _get_rate)
        types = list(dict.fromkeys(rate.type for rate in totals))
        return [
            (_describe_rate(rate), totals[rate].taxable, totals[rate].tax)
            for rate in sorted(totals, key=lambda rate: types.index(rate.type))
        ]

    @property
    def home_sums(self) -> tuple[Decimal, Decimal] | None:
        """Return (tax, payable) in MYR, rounded half up, or None in MYR or without a rate."""
        if self.currency == document.HOME_CURRENCY or not self.exchange_rate:
            return None
        rate = self.exchange_rate
        return convert_home(self.sums.tax, rate), convert_home(self.sums.payable, rate)


def convert_home(amount: Decimal, exchange_rate: Decimal | int) -> Decimal:
    """Convert an amount in a foreign currency to MYR, rounded half up."""
    return round_cents(EXACT.multiply(amount, Decimal(exchange_rate)))


def make_draft_printout(source: JsonMapping, issuer: JsonMapping) -> Printout:
    """Return the Printout of a stored record, which may lack facts.

    `source` and `issuer` are those of document.build.
    """
    supplier, buyer = document.get_parties(source, issuer)
    return Printout(
        kind=document.get_document_type(source),
        currency=source.get("currencyCode") or document.HOME_CURRENCY,
        exchange_rate=source.get("exchangeRate"),
        originals=source.get("originals") or [],
        supplier=supplier,
        buyer=buyer,
        items=source["lineItems"],
        allowances=read_adjustments(source, "allowances"),
        charges=read_adjustments(source, "charges"),
        sums=compute_document(source),
        terms=format_terms(_add_own_account(source, issuer)),
    )


def _add_own_account(source: JsonMapping, issuer: JsonMapping) -> JsonMapping:
    """Return the source with the bank account of the company, if that is the supplier's."""
    payment = get_object(source, "payment")
    if payment.get("bankAccount") or not payment.get("mode") or document.is_self_billed(source):
        return source
    return {**source, "payment": {**payment, "bankAccount": issuer.get("bank_account")}}


def format_terms(source: JsonMapping) -> list[tuple[str, str]]:
    """Return (label, text) of each fact outside the lines of a document in the request shape."""
    payment, period = get_object(source, "payment"), get_object(source, "billingPeriod")
    prepayment = get_object(source, "prepayment")
    mode = payment.get("mode")
    span = _join(" – ", period.get("start"), period.get("end"))
    prepaid = _join(" ", prepayment.get("date"), prepayment.get("time"))
    bills = document.get_reference_numbers(source.get("references") or (), "BILL")
    return _keep_given(
        ("Payment by", get_names("payment_modes").get(mode, mode) if mode else None),
        ("Bank account", payment.get("bankAccount")),
        ("Terms of payment", payment.get("terms")),
        ("Prepayment", _join(", ", prepaid, prepayment.get("reference"))),
        ("Billing period", _join(", ", span, period.get("frequency"))),
        ("Delivery to", get_object(source, "delivery").get("name")),
        ("Bill reference", ", ".join(bills)),
    )


def _keep_given(*rows: tuple[str, str | None]) -> list[tuple[str, str]]:
    """Return the (label, text) that have a text."""
    return [(label, kept) for label, text in rows if (kept := _or_empty(text))]


def _join(separator: str, *texts: str | None) -> str:
    return separator.join(filter(None, texts))


# The summary of taxes


def _get_rate(tax: Tax) -> TaxRate:
    return TaxRate(tax.type) if tax.type in UNTAXED else tax.rate


def _describe_rate(rate: TaxRate) -> str:
    """Format a rate as Service Tax 8%, Tourism Tax 10.00 per unit or Tax exempt."""
    name = tax_name(rate.type)
    if rate.per_unit is not None:
        return f"{name} {price(rate.per_unit)} per unit"
    return name if rate.percentage is None else f"{name} {_percent(rate.percentage)}"


# Lines


def describe_lines(shown: Printout) -> Iterator[tuple[object, ...]]:
    """Yield the cells of each line. Discounts, charges and taxes are tuples of texts."""
    for number, (item, sums) in enumerate(zip(shown.items, shown.sums.lines, strict=True), 1):
        yield (
            item.get("id") or number,
            item["description"],
            item.get("originCountry", "MYS"),
            item.get("taxExemptionReason"),
            ", ".join(item.get("classifications", ())),
            quantity(item["unit"]),
            price(item["unit"]["price"]),
            [
                (f"{sign}{amount(each.amount)}", _join(" ", name, share(each.factor)), each.reason)
                for sign, name, each in (
                    ("−", "Discount", sums.discount),
                    ("+", "Charge", sums.charge),
                )
                if each
            ],
            amount(sums.net),
            [(amount(tax.amount), f"{tax_name(tax.type)} {tax_rate(tax)}") for tax in sums.taxes],
        )


# Titles and statuses

#: The texts of the page.
_TEXTS: dict[str, JsonObject] = json_codec.load_data(__file__)
TITLES: dict[str, str] = _TEXTS["titles"]
#: Status -> [mark across the page, explanation]; a Valid document has none.
MARKS: dict[str, list[str]] = _TEXTS["marks"]
#: Code of a common unit -> [name of one, name of several]. The portal's names are not for print.
COMMON_UNITS: dict[str, list[str]] = _TEXTS["units"]


def get_titles(kind: str, consolidated: bool = False) -> tuple[str, str]:
    """Return the (English, Malay) title of a document type. Portal: 12.1"""
    if consolidated:  # its document type is that of other invoices. Portal: 9
        english, malay = _TEXTS["consolidated_titles"][kind]
        return english, malay
    return get_names("document_types")[kind], TITLES[kind]


# Parties

#: Placeholders of a document for missing facts; a page omits them. Portal: 10.3, 10.13
PLACEHOLDERS = {"", "NA", "000000000000", "00000", "NOT APPLICABLE"}


def facts(party: JsonMapping) -> list[tuple[str, str]]:
    """Return (label, text) of each fact, besides the name, that identifies a party."""
    registration = get_object(party, "registration")
    scheme = registration.get("type", "")
    industry = (_or_empty(party.get("msic")), _or_empty(party.get("businessActivityDescription")))
    return _keep_given(
        ("TIN", party.get("tin")),
        (_TEXTS["schemes"].get(scheme, "Registration no."), registration.get("number")),
        ("SST no.", party.get("sstRegistrationNumber")),
        ("Tourism tax no.", party.get("tourismTaxRegistrationNumber")),
        ("MSIC", _join(" ", *industry)),
        ("Telephone", party.get("contactNumber")),
        ("E-mail", party.get("email")),
    )


def address(party: JsonMapping) -> list[str]:
    """Return the lines of a party's address, with the names of state and country."""
    given = get_object(party, "address")
    streets = [
        line
        for name in ("line1", "line2", "line3")
        for line in (given.get(name) or "").splitlines()
    ]
    town = _join(" ", _or_empty(given.get("zipCode")), _or_empty(given.get("city")))
    region = _join(", ", _get_state(given), _get_country(given))
    return [kept for line in (*streets, town, region) if (kept := _or_empty(line))]


def _or_empty(text: str | None) -> str:
    """Return the trimmed text, or "" for a placeholder."""
    kept = (text or "").strip()
    return "" if kept in PLACEHOLDERS else kept


def _get_state(address: JsonMapping) -> str:
    code = address.get("state") or ""
    if code == STATE_ABROAD:
        return ""
    return code if is_abroad(address) else get_names("states").get(code, code)


def _get_country(address: JsonMapping) -> str:
    code = address.get("country") or ""
    has_more = any(_or_empty(address.get(name)) for name in ("line1", "city"))
    return get_names("countries").get(code, code) if has_more else ""


# Numbers


def amount(number: Decimal) -> str:
    """Format an amount of money as 1,234.50."""
    return f"{number:,.2f}"


def signed(number: Decimal) -> str:
    """Format an amount that is added or subtracted, with a plus or minus sign."""
    return f"{number:+,.2f}".replace("-", "−")


def price(number: Decimal | int) -> str:
    """Format a unit price with all its decimals, at least two."""
    number = Decimal(number)
    return amount(number) if count_decimals(number) < 2 else plain(number)


def plain(number: Decimal | int) -> str:
    """Format a quantity or a rate with all its decimals, as 1,234.5."""
    return f"{Decimal(number):,f}"


def share(factor: Decimal | None) -> str:
    """Format 0.05 as 5%, and None as an empty text."""
    return "" if factor is None else _percent(EXACT.scaleb(factor, 2))


#: Tax types without a rate -> name. Portal: 12.5
UNTAXED = {"06": "No tax", "E": "Tax exempt"}


def tax_name(kind: str) -> str:
    return UNTAXED.get(kind) or get_names("tax_types").get(kind, kind)


def tax_rate(tax: Tax) -> str:
    """Format a rate as 8%, or as amount x units; it is empty for tax types without a rate."""
    if tax.type in UNTAXED:
        return ""
    if tax.per_unit is not None and tax.units is not None:
        return f"{price(tax.per_unit)}\u00a0×\u00a0{plain(tax.units)}"
    return _percent(tax.percentage or Decimal(0))


def _percent(percentage: Decimal) -> str:
    return f"{percentage.normalize(EXACT):f}%"


def quantity(unit: JsonMapping) -> str:
    """Format the {code, count} of a line as 12 kg, or as 12 if it has no unit code."""
    count, code = unit["count"], unit.get("code")
    if not code:
        return plain(count)
    one, several = COMMON_UNITS.get(code) or [get_names("units").get(code, code)] * 2
    return f"{plain(count)} {one if count == 1 else several}"


# Times


def day(at: datetime, zone: tzinfo) -> str:
    """Format the day of an instant as 9 January 2026."""
    local = at.astimezone(zone)
    return f"{local.day} {local:%B %Y}"


def clock(at: datetime, zone: tzinfo) -> str:
    """Format the time of an instant as 14:03:22 (UTC+08:00)."""
    local = at.astimezone(zone)
    return f"{local:%H:%M:%S} (UTC{local.isoformat()[-6:]})"
