"""A document as it is handed out: what its page shows, and in which words. Pure functions.

The page of a submitted document is read from the bytes that were sent, see portal/frozen.py, the page of any other
from what is stored. Amounts are those that were sent, or money.py's, and Decimals until they are written.
"""

from decimal import Decimal
from typing import NamedTuple

from service.documents.codes import TABLES
from service.documents.money import Adjustment, Totals, round2, totals
from service.documents.ubl import document
from service.documents.ubl.references import ids


class Printout(NamedTuple):
    """What a page shows. `kind` is the portal's document type; parties and items have the request shape.

    `originals` of a note are [{number, uuid}]; `allowances` and `charges` are those of the whole document; `terms` are
    labels and texts of its payment, period, delivery and bills.
    """

    kind: str
    currency: str
    exchange_rate: Decimal | None
    originals: list
    supplier: dict
    buyer: dict
    items: list
    allowances: list[Adjustment]
    charges: list[Adjustment]
    sums: Totals
    terms: list[tuple[str, str]]

    @property
    def adjusts_lines(self):
        """Whether a line has a discount or a charge, for which the table then has a column."""
        return any(line.discount or line.charge for line in self.sums.lines)


def drafted(source, issuer):
    """The Printout of what is stored. `source` and `issuer` are as in document.build; facts may be missing."""
    supplier, buyer = document.parties(source, issuer)
    adjustments = source.get("invoiceLevelAllowanceCharge") or {}
    return Printout(
        document.document_type(source),
        source.get("currencyCode") or "MYR",
        source.get("exchangeRate"),
        source.get("originals") or [],
        supplier,
        buyer,
        source["lineItems"],
        _of_document(adjustments, "allowances"),
        _of_document(adjustments, "charges"),
        totals(source["lineItems"], adjustments),
        _agreed(source, issuer),
    )


def _agreed(source, issuer):
    payment, period = source.get("payment") or {}, source.get("billingPeriod") or {}
    own = (
        None
        if document.is_self_billed(source) or not payment.get("mode")
        else issuer.get("bank_account")
    )
    return terms(
        mode=payment.get("mode"),
        account=payment.get("bankAccount") or own,
        note=payment.get("terms"),
        start=period.get("start"),
        end=period.get("end"),
        frequency=period.get("frequency"),
        recipient=(source.get("delivery") or {}).get("name"),
        bills=ids(source.get("references") or (), "BILL"),
    )


def terms(*, mode, account, note, start, end, frequency, recipient, bills):
    """[(label, text)] of what was agreed beside the lines; what is absent is left out."""
    span = " – ".join(filter(None, (start, end)))
    rows = (
        ("Payment by", TABLES["payment_modes"].get(mode, mode)),
        ("Bank account", account),
        ("Terms of payment", note),
        ("Billing period", ", ".join(filter(None, (span, frequency)))),
        ("Delivery to", recipient),
        ("Bill reference", ", ".join(bills)),
    )
    return [(label, kept) for label, text in rows if (kept := _given(text))]


def _of_document(adjustments, name):
    return [
        Adjustment(round2(each["amount"]), None, each.get("reason"))
        for each in adjustments.get(name) or ()
    ]


# What a document is called, and how it stands

TITLES = {
    "01": "Invois",
    "02": "Nota Kredit",
    "03": "Nota Debit",
    "04": "Nota Bayaran Balik",
    "11": "Invois Bil Sendiri",
    "12": "Nota Kredit Bil Sendiri",
    "13": "Nota Debit Bil Sendiri",
    "14": "Nota Bayaran Balik Bil Sendiri",
}

#: status -> (the mark across the page, what it means); a Valid document has none.
MARKS = {
    "Draft": (
        "DRAFT",
        "It has not been submitted to the tax authority's portal and is no e-Invoice.",
    ),
    "Submitting": (
        "NOT VALIDATED",
        "It is on its way to the tax authority's portal, which has not validated it.",
    ),
    "Submitted": (
        "NOT VALIDATED",
        "The tax authority's portal has it and has not validated it yet.",
    ),
    "Invalid": (
        "NOT VALIDATED",
        "The tax authority's portal found it invalid; it is no e-Invoice.",
    ),
    "Rejected": (
        "NOT VALIDATED",
        "The tax authority's portal did not take it; it is no e-Invoice.",
    ),
    "Cancelled": ("CANCELLED", "The e-Invoice has been cancelled and is void."),
}


def titles(kind):
    """(English, Malay) of a document type. Portal: 12.1"""
    return TABLES["document_types"][kind], TITLES[kind]


# Parties

#: What a document says where a party has no such fact; a page says nothing. Portal: 10.3, 10.13
PLACEHOLDERS = {"", "NA", "000000000000", "00000", "NOT APPLICABLE"}
ABROAD = "17"
HOME = "MYS"
SCHEMES = {
    "BRN": "Registration no. (BRN)",
    "NRIC": "Identity card (NRIC)",
    "PASSPORT": "Passport",
    "ARMY": "Army identity card",
}


def facts(party):
    """[(label, text)] of all that identifies a party beside its name; what it lacks is left out."""
    registration = party.get("registration") or {}
    rows = (
        ("TIN", party.get("tin")),
        (SCHEMES.get(registration.get("type"), "Registration no."), registration.get("number")),
        ("SST no.", party.get("sstRegistrationNumber")),
        ("Tourism tax no.", party.get("tourismTaxRegistrationNumber")),
        (
            "MSIC",
            " ".join(
                filter(
                    None, map(_given, (party.get("msic"), party.get("businessActivityDescription")))
                )
            ),
        ),
        ("Telephone", party.get("contactNumber")),
        ("E-mail", party.get("email")),
    )
    return [(label, kept) for label, text in rows if (kept := _given(text))]


def address(party):
    """The lines of a party's address: street, town, then state and country by name."""
    given = party.get("address") or {}
    streets = [
        line
        for name in ("line1", "line2", "line3")
        for line in (given.get(name) or "").splitlines()
    ]
    town = " ".join(filter(None, map(_given, (given.get("zipCode"), given.get("city")))))
    region = ", ".join(filter(None, (_state(given), _country(given))))
    return [kept for line in (*streets, town, region) if (kept := _given(line))]


def _given(text):
    kept = (text or "").strip()
    return "" if kept in PLACEHOLDERS else kept


def _state(address):
    code = address.get("state") or ""
    if code == ABROAD:
        return ""
    return TABLES["states"].get(code, code) if (address.get("country") or HOME) == HOME else code


def _country(address):
    code = address.get("country") or ""
    has_more = any(_given(address.get(name)) for name in ("line1", "city"))
    return TABLES["countries"].get(code, code) if has_more else ""


# Numbers, as people write them and digit for digit


def amount(number):
    """Of money: 1,234.50."""
    return f"{number:,.2f}"


def price(number):
    """A unit price with all its places, and with two at least."""
    number = Decimal(number)
    return amount(number) if number.as_tuple().exponent > -2 else plain(number)


def plain(number):
    """A quantity or a rate as it was given, its thousands parted."""
    return f"{Decimal(number):,f}"


def share(factor):
    """0.05 is 5%; empty where an amount was agreed."""
    return "" if factor is None else _percent(f"{factor:%}"[:-1])


def _percent(text):
    return (text.rstrip("0").rstrip(".") if "." in text else text) + "%"


#: Tax types that have no rate, by what they mean. Portal: 12.5
UNTAXED = {"06": "No tax", "E": "Tax exempt"}


def tax_name(kind):
    return UNTAXED.get(kind) or TABLES["tax_types"].get(kind, kind)


def tax_rate(tax):
    """8%, or what is due for each of so many units; nothing where there is no rate."""
    if tax.type in UNTAXED:
        return ""
    if tax.percentage is None:
        return f"{price(tax.per_unit)}\u00a0×\u00a0{plain(tax.units)}"
    return _percent(f"{tax.percentage:f}")


def unit_name(code):
    return TABLES.get("units", {}).get(code, code)


# Times


def day(at, zone):
    local = at.astimezone(zone)
    return f"{local.day} {local:%B %Y}"


def clock(at, zone):
    """14:03:22 (UTC+08:00)."""
    local = at.astimezone(zone)
    return f"{local:%H:%M:%S} (UTC{local.isoformat()[-6:]})"
