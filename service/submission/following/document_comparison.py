"""Compares documents of the portal with sent ones, by their bytes or by a listed row.

Pure functions over the sent bytes and the portal's responses.
"""

from decimal import Decimal

from service import json_codec
from service.documents.money import round_cents
from service.documents.printing import Printout
from service.documents.ubl import document, reader
from service.documents.ubl.parties import normalize_tin
from service.json_types import Json
from service.portal.documents import Document


def is_same(content: bytes, copy: str) -> bool:
    """Return whether the portal's copy has the sent bytes, or is the same JSON reformatted."""
    if copy.encode("utf-8", "surrogatepass") == content:
        return True
    try:
        return _equal(json_codec.loads(copy.encode("utf-8")), json_codec.loads(content))
    except (json_codec.NotJson, UnicodeEncodeError):
        return False


def row_differences(sent: Printout, there: Document) -> list[str]:
    """Return the members of a row that differ, or are required and missing.

    An empty list is evidence if number, type, issue time and issuer agree, with a TIN of one
    company.
    """
    supplier, buyer, sums = sent.supplier, sent.buyer, sent.sums
    is_self_billed = sent.kind.startswith("1")
    receiver = supplier if is_self_billed else buyer  # the party that is not the issuer
    texts = {
        "supplier TIN": (there.supplier_tin, supplier["tin"], normalize_tin),
        "supplier name": (there.supplier_name, supplier["name"], _normalise_name),
        "buyer TIN": (there.buyer_tin, buyer["tin"], normalize_tin),
        "buyer name": (there.buyer_name, buyer["name"], _normalise_name),
        "receiver name": (there.receiver_name, receiver["name"], _normalise_name),
    }
    amounts = {
        "payable amount": (there.payable, [sums.payable]),
        "amount excluding tax": (there.excluding_tax, [sums.excluding_tax]),
        # With and without document-level adjustments
        "net amount": (there.net, [sums.excluding_tax, sums.net_amount]),
    }
    differing = [
        member
        for member, (shown, own, normalise) in texts.items()
        if shown and normalise(shown) != normalise(own or "")
    ]
    differing += [
        member
        for member, (shown, own) in amounts.items()
        if shown is not None and round_cents(shown) not in _in_either_currency(sent, own)
    ]
    if there.payable is None:
        differing.append("payable amount (not shown)")
    if is_self_billed:
        shown = (there.supplier_tin, there.supplier_name)
    else:
        shown = (there.buyer_tin, there.buyer_name)
    if not any((*shown, there.receiver_name)):
        differing.append("receiver (not shown)")
    return differing


def copy_differences(content: bytes, copy: str) -> list[str]:
    """Return how the portal's copy differs from the sent document, for people. Empty if equal."""
    if is_same(content, copy):
        return []
    try:
        sent, shown = _describe(content), _describe(copy.encode("utf-8"))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return ["its text cannot be read as a document"]
    differing = [
        f"{member}: {shown[member]} there, {own} sent"
        for member, own in sent.items()
        if shown[member] != own
    ]
    return differing or ["its bytes differ"]


def _describe(content: bytes) -> dict[str, str]:
    """Return the members of a document that differences name. Raises for any other text."""
    printout = reader.read(content)
    parties = {"supplier": printout.supplier, "buyer": printout.buyer}
    amounts = {
        "payable amount": printout.sums.payable,
        "amount excluding tax": printout.sums.excluding_tax,
    }
    names = {
        member: f"{_normalise_name(party['name'] or '')} ({normalize_tin(party['tin'])})"
        for member, party in parties.items()
    }
    sums = {
        member: "/".join(map(str, sorted(_in_either_currency(printout, [amount]))))
        for member, amount in amounts.items()
    }
    return names | sums


def _normalise_name(text: str) -> str:
    return " ".join(text.split()).casefold()


def _in_either_currency(sent: Printout, amounts: list[Decimal]) -> set[Decimal]:
    """Return amounts rounded to cents, as sent and, in a foreign currency, converted to MYR."""
    rate = sent.exchange_rate if sent.currency != document.HOME_CURRENCY else None
    converted = [amount * rate for amount in amounts] if rate else []
    return {round_cents(amount) for amount in [*amounts, *converted]}


def _equal(left: Json, right: Json) -> bool:
    """Compare JSON values: 1 equals 1.00, but not true."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and left == right
