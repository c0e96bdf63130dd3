"""Prove that a document of the portal is the one that was sent: by its bytes, or by what a listed row shows of it.

Pure functions over the bytes that were sent and the portal's answers.
"""

import hashlib
from dataclasses import dataclass
from decimal import Decimal

from service import json_codec
from service.documents.money import round2
from service.documents.ubl import document, reader
from service.portal.responses import Document


@dataclass(frozen=True, slots=True)
class Party:
    """A party as it was sent, in the form in which it is compared."""

    tin: str
    name: str


@dataclass(frozen=True, slots=True)
class SentDocument:
    """What a listed row can show of a document that was sent.

    The amounts are the values that count as equal: as sent and, in a foreign currency, converted to MYR.
    """

    supplier: Party
    buyer: Party
    is_self_billed: bool
    payable: frozenset[Decimal]
    excluding_tax: frozenset[Decimal]
    net: frozenset[Decimal]

    @property
    def receiver(self) -> Party:
        """The party that is not the issuer. Portal: 5.1"""
        return self.supplier if self.is_self_billed else self.buyer


def read_sent(content: bytes) -> SentDocument:
    """Return what a row can show of the document with these bytes."""
    printout = reader.read(content)
    rate = printout.exchange_rate if printout.currency != document.HOME_CURRENCY else None
    sums = printout.sums
    return SentDocument(
        supplier=_party(printout.supplier),
        buyer=_party(printout.buyer),
        is_self_billed=printout.kind.startswith("1"),
        payable=_values(rate, sums.payable),
        excluding_tax=_values(rate, sums.excluding_tax),
        # With and without document-level adjustments
        net=_values(rate, sums.excluding_tax, sums.net_amount),
    )


def is_same(content: bytes, copy: str) -> bool:
    """Return true if the portal's copy has the bytes that were sent, or is the same JSON, which it may have formatted."""
    if (
        hashlib.sha256(copy.encode("utf-8", "surrogatepass")).digest()
        == hashlib.sha256(content).digest()
    ):
        return True
    try:
        return _equal(json_codec.loads(copy.encode("utf-8")), json_codec.loads(content))
    except (json_codec.NotJson, UnicodeEncodeError):
        return False


def row_differences(sent: SentDocument, there: Document) -> list[str]:
    """Return what a row does not prove: members that differ, or that it has to show and does not.

    An empty list is a proof, provided that number, type, issue time and issuer agree and that the TIN is not shared.
    """
    parties = {
        "supplier TIN": (there.supplier_tin, sent.supplier.tin, _tin),
        "supplier name": (there.supplier_name, sent.supplier.name, _name),
        "buyer TIN": (there.buyer_tin, sent.buyer.tin, _tin),
        "buyer name": (there.buyer_name, sent.buyer.name, _name),
        "receiver name": (there.receiver_name, sent.receiver.name, _name),
    }
    amounts = {
        "payable amount": (there.payable, sent.payable),
        "amount excluding tax": (there.excluding_tax, sent.excluding_tax),
        "net amount": (there.net, sent.net),
    }
    differing = [
        what for what, (shown, ours, form) in parties.items() if shown and form(shown) != ours
    ]
    differing += [
        what
        for what, (shown, ours) in amounts.items()
        if shown is not None and round2(shown) not in ours
    ]
    if there.payable is None:
        differing.append("payable amount (not shown)")
    if not _shows_receiver(sent, there):
        differing.append("receiver (not shown)")
    return differing


def copy_differences(content: bytes, copy: str) -> list[str]:
    """Return how the portal's copy differs from what was sent, for a person; empty if it does not."""
    if is_same(content, copy):
        return []
    try:
        ours, theirs = read_sent(content), read_sent(copy.encode("utf-8"))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return ["its text cannot be read as a document"]
    facts = {
        "supplier": (ours.supplier, theirs.supplier),
        "buyer": (ours.buyer, theirs.buyer),
        "payable amount": (ours.payable, theirs.payable),
        "amount excluding tax": (ours.excluding_tax, theirs.excluding_tax),
    }
    differing = [
        f"{what}: {_shown(there)} there, {_shown(here)} sent"
        for what, (here, there) in facts.items()
        if here != there
    ]
    return differing or ["its bytes differ"]


def _party(party: dict) -> Party:
    return Party(_tin(party["tin"] or ""), _name(party["name"] or ""))


def _tin(text: str) -> str:
    """Return a TIN as the portal compares it. Portal: 3.2"""
    return "".join(text.split()).replace("-", "").upper()


def _name(text: str) -> str:
    return " ".join(text.split()).casefold()


def _values(rate: Decimal | None, *amounts: Decimal) -> frozenset[Decimal]:
    """Return the amounts to the cent and, with a rate, converted to MYR."""
    converted = [amount * rate for amount in amounts] if rate else []
    return frozenset(round2(amount) for amount in [*amounts, *converted])


def _shows_receiver(sent: SentDocument, there: Document) -> bool:
    shown = (
        (there.supplier_tin, there.supplier_name)
        if sent.is_self_billed
        else (there.buyer_tin, there.buyer_name)
    )
    return any((*shown, there.receiver_name))


def _equal(ours: object, theirs: object) -> bool:
    """Compare JSON values; true and 1 are different ones, 1 and 1.00 are not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(
            _equal(ours[name], theirs[name]) for name in ours
        )
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    return isinstance(ours, bool) == isinstance(theirs, bool) and ours == theirs


def _shown(value: Party | frozenset[Decimal]) -> str:
    return (
        f"{value.name} ({value.tin})"
        if isinstance(value, Party)
        else "/".join(str(one) for one in sorted(value))
    )
