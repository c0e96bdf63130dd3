"""Compares documents of the portal with sent ones, by their bytes or by a listed row.

Pure functions over the sent bytes and the portal's responses.
"""

from dataclasses import dataclass
from decimal import Decimal

from service import json_codec
from service.documents.money import round_cents
from service.documents.ubl import document, reader
from service.documents.ubl.parties import normalize_tin
from service.json_types import Json, JsonMapping
from service.portal.documents import Document


@dataclass(frozen=True, slots=True)
class ComparedParty:
    """A sent party, normalised for comparison."""

    tin: str
    name: str


@dataclass(frozen=True, slots=True)
class SentDocument:
    """The members of a sent document that a listed row can show.

    Amounts are sets of equal values: as sent and, in a foreign currency, converted to MYR.
    """

    supplier: ComparedParty
    buyer: ComparedParty
    is_self_billed: bool
    payable: frozenset[Decimal]
    excluding_tax: frozenset[Decimal]
    net: frozenset[Decimal]

    @property
    def receiver(self) -> ComparedParty:
        """Return the party that is not the issuer. Portal: 5.1"""
        return self.supplier if self.is_self_billed else self.buyer


def read_sent(content: bytes) -> SentDocument:
    """Return the comparable members of the document with these bytes."""
    printout = reader.read(content)
    rate = printout.exchange_rate if printout.currency != document.HOME_CURRENCY else None
    sums = printout.sums
    return SentDocument(
        supplier=_party(printout.supplier),
        buyer=_party(printout.buyer),
        is_self_billed=printout.kind.startswith("1"),
        payable=_amounts(rate, sums.payable),
        excluding_tax=_amounts(rate, sums.excluding_tax),
        # With and without document-level adjustments
        net=_amounts(rate, sums.excluding_tax, sums.net_amount),
    )


def is_same(content: bytes, copy: str) -> bool:
    """Return whether the portal's copy has the sent bytes, or is the same JSON reformatted."""
    if copy.encode("utf-8", "surrogatepass") == content:
        return True
    try:
        return _equal(json_codec.loads(copy.encode("utf-8")), json_codec.loads(content))
    except (json_codec.NotJson, UnicodeEncodeError):
        return False


def row_differences(sent: SentDocument, there: Document) -> list[str]:
    """Return the members of a row that differ, or are required and missing.

    An empty list is evidence if number, type, issue time and issuer agree, with a TIN of one
    company.
    """
    parties = {
        "supplier TIN": (there.supplier_tin, sent.supplier.tin, normalize_tin),
        "supplier name": (there.supplier_name, sent.supplier.name, _normalise_name),
        "buyer TIN": (there.buyer_tin, sent.buyer.tin, normalize_tin),
        "buyer name": (there.buyer_name, sent.buyer.name, _normalise_name),
        "receiver name": (there.receiver_name, sent.receiver.name, _normalise_name),
    }
    amounts = {
        "payable amount": (there.payable, sent.payable),
        "amount excluding tax": (there.excluding_tax, sent.excluding_tax),
        "net amount": (there.net, sent.net),
    }
    differing = [
        member
        for member, (shown, expected, normalise) in parties.items()
        if shown and normalise(shown) != expected
    ]
    differing += [
        member
        for member, (shown, expected) in amounts.items()
        if shown is not None and round_cents(shown) not in expected
    ]
    if there.payable is None:
        differing.append("payable amount (not shown)")
    if not _shows_receiver(sent, there):
        differing.append("receiver (not shown)")
    return differing


def copy_differences(content: bytes, copy: str) -> list[str]:
    """Return how the portal's copy differs from the sent document, for people. Empty if equal."""
    if is_same(content, copy):
        return []
    try:
        sent, shown = read_sent(content), read_sent(copy.encode("utf-8"))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return ["its text cannot be read as a document"]
    facts = {
        "supplier": (sent.supplier, shown.supplier),
        "buyer": (sent.buyer, shown.buyer),
        "payable amount": (sent.payable, shown.payable),
        "amount excluding tax": (sent.excluding_tax, shown.excluding_tax),
    }
    differing = [
        f"{member}: {_describe(there)} there, {_describe(here)} sent"
        for member, (here, there) in facts.items()
        if here != there
    ]
    return differing or ["its bytes differ"]


def _party(party: JsonMapping) -> ComparedParty:
    return ComparedParty(normalize_tin(party["tin"]), _normalise_name(party["name"] or ""))


def _normalise_name(text: str) -> str:
    return " ".join(text.split()).casefold()


def _amounts(rate: Decimal | None, *amounts: Decimal) -> frozenset[Decimal]:
    """Return the amounts rounded to cents and, with a rate, also converted to MYR."""
    converted = [amount * rate for amount in amounts] if rate else []
    return frozenset(round_cents(amount) for amount in [*amounts, *converted])


def _shows_receiver(sent: SentDocument, there: Document) -> bool:
    """Return whether a row shows the TIN or the name of the party that is not the issuer."""
    if sent.is_self_billed:
        return any((there.supplier_tin, there.supplier_name, there.receiver_name))
    return any((there.buyer_tin, there.buyer_name, there.receiver_name))


def _equal(left: Json, right: Json) -> bool:
    """Compare JSON values: 1 equals 1.00, but not true."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _describe(value: ComparedParty | frozenset[Decimal]) -> str:
    if isinstance(value, ComparedParty):
        return f"{value.name} ({value.tin})"
    return "/".join(str(amount) for amount in sorted(value))
