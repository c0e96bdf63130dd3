"""A submitted document: values by path, parties, totals. Portal: 10

A path names elements separated by dots, such as `LegalMonetaryTotal.PayableAmount`. The arrays
between the elements are implied.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property
from typing import Any, Literal, get_args

import msgspec

SELF_BILLED = {"11", "12", "13", "14"}
NOTES = {"02", "03", "04", "12", "13", "14"}
SIGNED_VERSIONS = {"1.1", "1.3"}
VERSIONS = {"1.0", "1.1", "1.2", "1.3"}
GENERAL_PUBLIC = "EI00000000010"
TIN_ONLY = "000000000000"  # identity number of a party that gave only its TIN
IdentityScheme = Literal["BRN", "NRIC", "PASSPORT", "ARMY"]
IDENTITY_SCHEMES = get_args(IdentityScheme)
CENT = Decimal("0.01")
#: Levels of objects and arrays. A signed document has about 30. Python's own limit depends on the
#: caller, so that a document could be read once and not again.
MOST_LEVELS = 100
EXACT = Context(prec=1_000_000)  # more digits than a document can have

#: A value of a document, of any shape: its structure is checked later.
Node = Any


def parse_decimal(text: str) -> Decimal:
    """Return a number exactly. Raises ValueError for an exponent. Portal: 10.1"""
    if "e" in text.lower():
        raise ValueError("exponent")
    return Decimal(text)


#: Reads JSON in UTF-8 as Python values with exact decimals.
DECODER = msgspec.json.Decoder(float_hook=parse_decimal)


def read_json(raw: bytes) -> Node:
    """Return a value of JSON. Raises ValueError if it is not JSON, or has too many levels."""
    try:
        value = DECODER.decode(raw)
    except RecursionError:
        raise ValueError("nested too deep") from None
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for node in level for inner in contents(node)]
    if level:
        raise ValueError(f"more than {MOST_LEVELS} levels")
    return value


def contents(node: Node) -> Iterable[Node]:
    """Return the values in an object or array, none for another value."""
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def entries(node: object, path: str) -> Iterator[Node]:
    """Yield every array entry at the path below the node. Nodes of another shape are skipped."""
    name, _, rest = path.partition(".")
    found = node.get(name) if isinstance(node, dict) else None
    for entry in found if isinstance(found, list) else ():
        if rest:
            yield from entries(entry, rest)
        else:
            yield entry


def values(node: object, path: str, attribute: str = "_") -> list[Node]:
    """Return the values, or an attribute, of all basic elements at the path that have one."""
    return [
        entry[attribute]
        for entry in entries(node, path)
        if isinstance(entry, dict) and attribute in entry
    ]


def value(node: object, path: str, attribute: str = "_") -> Node:
    """Return the first of `values`, or None."""
    return next(iter(values(node, path, attribute)), None)


def text_at(node: object, path: str, attribute: str = "_") -> str:
    """Return the first of `values` if it is text, else an empty text."""
    found = value(node, path, attribute)
    return found if isinstance(found, str) else ""


def text_property(*where: str) -> cached_property[str]:
    """Return a property with the text at a path of a document or party, or of its attribute."""
    return cached_property(lambda node: node.text(*where))


@dataclass
class UblParty:
    """A supplier, buyer or shipping recipient: the object inside `Party`."""

    role: str  # name in messages
    root: str  # path of the node in the invoice
    node: object

    name = text_property("PartyLegalEntity.RegistrationName")
    country = text_property("PostalAddress.Country.IdentificationCode")

    def text(self, path: str) -> str:
        """Return the stripped text at the path, or an empty string."""
        return text_at(self.node, path).strip()

    @cached_property
    def identifications(self) -> list[tuple[str, str]]:
        """Return (scheme, value) of each identification. Portal: 10.3"""
        found = entries(self.node, "PartyIdentification.ID")
        return [
            (entry.get("schemeID", ""), str(entry.get("_", "")))
            for entry in found
            if isinstance(entry, dict)
        ]

    @property
    def tin(self) -> str:
        return next((text for scheme, text in self.identifications if scheme == "TIN"), "")

    @property
    def identity(self) -> tuple[str, str]:
        """Return (scheme, value) of the registration or identity number, or ("", "")."""
        return next(
            (pair for pair in self.identifications if pair[0] in IDENTITY_SCHEMES), ("", "")
        )

    @property
    def is_public(self) -> bool:
        """Return whether the party is the general public, without a name. Portal: 10.13"""
        return self.tin == GENERAL_PUBLIC and self.identity[1] == "NA"


def party_property(role: str, root: str) -> cached_property[UblParty]:
    """Return a property with the party at a path of a document, an empty one if it is missing."""
    return cached_property(
        lambda document: UblParty(role, root, next(entries(document.invoice, root), {}))
    )


@dataclass
class UblDocument:
    """The invoice object inside a document of version 1.0 to 1.3; `raw` holds the sent bytes."""

    root: object
    raw: bytes = b""

    number = text_property("ID")
    type = text_property("InvoiceTypeCode")
    version = text_property("InvoiceTypeCode", "listVersionID")
    currency = text_property("DocumentCurrencyCode")
    supplier = party_property("SUPPLIER", "AccountingSupplierParty.Party")
    buyer = party_property("BUYER", "AccountingCustomerParty.Party")
    recipient = party_property("RECIPIENT", "Delivery.DeliveryParty")

    @cached_property
    def invoice(self) -> Node:
        return next(entries(self.root, "Invoice"), None)

    def text(self, path: str, attribute: str = "_") -> str:
        """Return the text at the path, or an empty string."""
        return text_at(self.invoice, path, attribute)

    @cached_property
    def issued_at(self) -> float:
        """Return the time of issue in Unix seconds. Requires a valid structure."""
        moment = datetime.strptime(
            self.text("IssueDate") + self.text("IssueTime"), "%Y-%m-%d%H:%M:%SZ"
        )
        return moment.replace(tzinfo=UTC).timestamp()

    @property
    def issuer(self) -> UblParty:
        return self.buyer if self.type in SELF_BILLED else self.supplier

    @property
    def receiver(self) -> UblParty:
        return self.supplier if self.type in SELF_BILLED else self.buyer

    @cached_property
    def consolidated(self) -> bool:
        """Return whether every line has classification 004 and no other. Portal: 13"""
        lines = list(entries(self.invoice, "InvoiceLine"))
        return bool(lines) and all(classifications(line) == ["004"] for line in lines)

    @property
    def references(self) -> list[tuple[str, str]]:
        """Return (uuid, number) of each original that a note refers to. Portal: 10.11"""
        found = entries(self.invoice, "BillingReference.InvoiceDocumentReference")
        return [(value(entry, "UUID") or "", value(entry, "ID") or "") for entry in found]

    def amount(self, path: str) -> Decimal:
        """Return a monetary total in MYR, rounded half up to 0.01, as in responses. Portal: 5.1"""
        rate = value(self.invoice, "TaxExchangeRate.CalculationRate") or 1
        found = value(self.invoice, f"LegalMonetaryTotal.{path}") or 0
        return multiply(found, 1 if self.currency == "MYR" else rate)


def multiply(amount: Decimal | int, factor: Decimal | int) -> Decimal:
    """Return a product, rounded half up to 0.01."""
    exact = EXACT.multiply(Decimal(amount), Decimal(factor))
    return exact.quantize(CENT, ROUND_HALF_UP, EXACT)


def classifications(line: object) -> list[object]:
    """Return the codes of list CLASS on a line, without tariff codes."""
    found = entries(line, "Item.CommodityClassification.ItemClassificationCode")
    return [entry.get("_") for entry in found if entry.get("listID", "CLASS") == "CLASS"]


TIN = re.compile(
    r"IG\d{8,12}|(C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)[1-9]\d{6,11}0|EI0{9}[1-4]0", re.ASCII
)


def well_formed_tin(text: str) -> bool:
    """Return whether a text has the form of a TIN. Portal: 3.2"""
    return bool(TIN.fullmatch(text))
