"""One submitted document, read: its values by path, its parties, its totals. Portal: 10

A path names elements with dots, `LegalMonetaryTotal.PayableAmount`; the arrays between them are implied.
"""

import json
import re
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property

SELF_BILLED = {"11", "12", "13", "14"}
NOTES = {"02", "03", "04", "12", "13", "14"}
SIGNED_VERSIONS = {"1.1", "1.3"}
VERSIONS = {"1.0", "1.1", "1.2", "1.3"}
GENERAL_PUBLIC = "EI00000000010"
TIN_ONLY = "000000000000"  # the identity of somebody who gave no more than a TIN
IDENTITY_SCHEMES = ("BRN", "NRIC", "PASSPORT", "ARMY")
CENT = Decimal("0.01")
EXACT = Context(prec=1_000_000)  # more digits than a document holds


def plain_decimal(text):
    """Raises ValueError for an exponent, which the portal refuses. Portal: 10.1"""
    if "e" in text.lower():
        raise ValueError("exponent")
    return Decimal(text)


def refuse_constant(text):
    raise ValueError(text)


def read_json(raw):
    """JSON bytes as Python values with exact decimals. Raises ValueError for what is not storable JSON in UTF-8."""
    try:
        value = json.loads(
            raw.decode("utf-8"), parse_float=plain_decimal, parse_constant=refuse_constant
        )
    except RecursionError:
        raise ValueError("nested too deep") from None
    if b"\\u" in raw:
        # Half a surrogate pair has no UTF-8
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
    return value


def entries(node, path):
    """Every array entry at the path below the node; nothing where the shape is another."""
    name, _, rest = path.partition(".")
    found = node.get(name) if isinstance(node, dict) else None
    for entry in found if isinstance(found, list) else ():
        if rest:
            yield from entries(entry, rest)
        else:
            yield entry


def values(node, path, attribute="_"):
    """The values, or an attribute, of every basic element at the path; absent ones are left out."""
    return [
        entry[attribute]
        for entry in entries(node, path)
        if isinstance(entry, dict) and attribute in entry
    ]


def value(node, path, attribute="_"):
    """The first of `values`, or None."""
    return next(iter(values(node, path, attribute)), None)


class Party:
    """A supplier, buyer or shipping recipient: the object inside `Party`."""

    def __init__(self, role, root, node):
        self.role = role  # as messages name it
        self.root = root  # the path of the node in the invoice
        self.node = node

    def text(self, path):
        found = value(self.node, path)
        return found.strip() if isinstance(found, str) else ""

    @cached_property
    def identifications(self):
        """(scheme, value) of each identification. Portal: 10.3"""
        found = entries(self.node, "PartyIdentification.ID")
        return [
            (entry.get("schemeID"), str(entry.get("_", "")))
            for entry in found
            if isinstance(entry, dict)
        ]

    def scheme(self, wanted):
        return next((text for scheme, text in self.identifications if scheme == wanted), "")

    @property
    def tin(self):
        return self.scheme("TIN")

    @property
    def identity(self):
        """(scheme, value) of the registration or identity number, or ("", "")."""
        return next(
            (pair for pair in self.identifications if pair[0] in IDENTITY_SCHEMES), ("", "")
        )

    @property
    def name(self):
        return self.text("PartyLegalEntity.RegistrationName")

    @property
    def country(self):
        return self.text("PostalAddress.Country.IdentificationCode")


class Document:
    """The invoice object inside a document of version 1.0 to 1.3; `raw` is the document as it was sent."""

    def __init__(self, root, raw=b""):
        self.root = root
        self.raw = raw
        self.invoice = next(entries(root, "Invoice"), None)

    def text(self, path, attribute="_"):
        found = value(self.invoice, path, attribute)
        return found if isinstance(found, str) else ""

    @property
    def number(self):
        return self.text("ID")

    @property
    def type(self):
        return self.text("InvoiceTypeCode")

    @property
    def version(self):
        return self.text("InvoiceTypeCode", "listVersionID")

    @property
    def currency(self):
        return self.text("DocumentCurrencyCode")

    @cached_property
    def issued_at(self):
        """Unix seconds; the structure has been checked."""
        moment = datetime.strptime(
            self.text("IssueDate") + self.text("IssueTime"), "%Y-%m-%d%H:%M:%SZ"
        )
        return moment.replace(tzinfo=UTC).timestamp()

    @cached_property
    def supplier(self):
        return self.party("SUPPLIER", "AccountingSupplierParty.Party")

    @cached_property
    def buyer(self):
        return self.party("BUYER", "AccountingCustomerParty.Party")

    def party(self, role, root):
        return Party(role, root, next(entries(self.invoice, root), {}))

    @property
    def issuer(self):
        return self.buyer if self.type in SELF_BILLED else self.supplier

    @property
    def receiver(self):
        return self.supplier if self.type in SELF_BILLED else self.buyer

    @cached_property
    def consolidated(self):
        """Classification 004, and no other, on every line. Portal: 13"""
        lines = list(entries(self.invoice, "InvoiceLine"))
        return bool(lines) and all(classifications(line) == ["004"] for line in lines)

    def nameless(self, party):
        """The general public of a consolidated document, whose address may be blank. Portal: 10.13"""
        return self.consolidated and party.tin == GENERAL_PUBLIC and party.identity[1] == "NA"

    @property
    def references(self):
        """(uuid, number) of each original a note refers to. Portal: 10.11"""
        found = entries(self.invoice, "BillingReference.InvoiceDocumentReference")
        return [(value(entry, "UUID") or "", value(entry, "ID") or "") for entry in found]

    def amount(self, path):
        """In MYR, as the portal's answers give it, rounded half up to 0.01. Portal: 5.1"""
        rate = (
            value(self.invoice, "TaxExchangeRate.CalculationRate") if self.currency != "MYR" else 1
        )
        found = value(self.invoice, f"LegalMonetaryTotal.{path}")
        return EXACT.multiply(Decimal(found or 0), Decimal(rate or 1)).quantize(
            CENT, ROUND_HALF_UP, EXACT
        )


def classifications(line):
    """The codes of list CLASS on a line; a tariff code is not one."""
    found = entries(line, "Item.CommodityClassification.ItemClassificationCode")
    return [entry.get("_") for entry in found if entry.get("listID", "CLASS") == "CLASS"]


TIN = re.compile(
    r"IG\d{8,12}|(C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)[1-9]\d{6,11}0|EI0{9}[1-4]0", re.ASCII
)


def well_formed_tin(text):
    """Portal: 3.2"""
    return bool(TIN.fullmatch(text))
