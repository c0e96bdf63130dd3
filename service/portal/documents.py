"""Documents as the portal shows them, and rows that cannot be read as documents.

A member of a document is declared once, in Document: the attribute, the member of the portal and
its reader. What a row is read into, what makes it odd and its digest follow from that.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple, get_args

from service import json_codec
from service.documents.codes import BUILT_IN
from service.json_types import JsonObject
from service.portal.parsing import (
    ErrorEntry,
    Unreadable,
    clean_text,
    fold_members,
    identifier,
    instant,
    number,
    opaque,
    read_member,
    text,
)

MOST_PAGE_ROWS = 1000  # rows of one page, of which 100 are requested
MOST_SHOWN = 2000  # characters that are stored of a row that could not be read
MOST_VALUE = 40  # characters of an unknown value in a problem

KnownStatus = Literal["Submitted", "Valid", "Invalid", "Cancelled"]
PortalStatus = KnownStatus | Literal["Unknown"]
STATUSES: dict[str, KnownStatus] = {status.lower(): status for status in get_args(KnownStatus)}
NO_DATE = "0001-01-01T00:00:00"  # the default date of .NET
UNKNOWN: PortalStatus = "Unknown"  # the status of a document whose status is none of these


def _letters(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())


#: Letters of a type name -> type code. Portal: 9
TYPES = {_letters(name): code for code, name in BUILT_IN["document_types"].codes.items()}


@dataclass(frozen=True, slots=True)
class OddRow:
    """A row of a listing with a member that could not be read or has an unknown value.

    The attributes of Document identify it. They are None where they were missing or could not be
    read.
    """

    key: str  # the uuid or, if that cannot be read, a hash of the members that do not change
    problems: tuple[str, ...]
    shown: str  # the row, truncated
    digest: str  # of the whole row
    uuid: str | None = None
    number: str | None = None
    type_code: str | None = None
    issued_at: datetime | None = None
    issuer_tin: str | None = None
    submission_uid: str | None = None


_Values = dict[str, Any]  # by attribute


class _Member(NamedTuple):
    """The member of a row that an attribute comes from; its names differ by operation."""

    names: tuple[str, ...]
    reader: Callable[[object], object]
    is_required: bool


def _member(reader: Callable[[object], object], *names: str, is_required: bool = False) -> Any:
    return field(default=None, metadata={"member": _Member(names, reader, is_required)})


def _type_code(value: object) -> str | None:
    return TYPES.get(_letters(text(value) or ""))


def _status(value: object) -> PortalStatus | None:
    found = text(value)
    if found and found.lower() not in STATUSES:
        raise Unreadable(f"is unknown: {found[:MOST_VALUE]}")
    return STATUSES[found.lower()] if found else None


def _past(value: object) -> datetime | None:
    """Return a date-time; None for the default date of .NET, as if it were missing."""
    return None if isinstance(value, str) and value.startswith(NO_DATE) else instant(value)


def _name(value: object) -> str | None:
    """Return a string; None for anything else, as if it were missing."""
    return clean_text(value) if isinstance(value, str) and value.strip() else None


def _amount(value: object) -> Decimal | None:
    """Return a number; None for anything else, as if it were missing."""
    return Decimal(value) if type(value) is int or type(value) is Decimal else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as the portal shows it. Portal: 5.1, 5.2, 5.3, 5.5

    Only the details request fills `errors`, and only the raw request fills `content`.
    """

    uuid: str = _member(identifier, "uuid", is_required=True)
    submission_uid: str | None = _member(identifier, "submissionUid")
    number: str = _member(number, "internalId", is_required=True)
    type_code: str | None = _member(_type_code, "typeName")  # "01" to "14"; None if unknown
    issuer_tin: str | None = _member(text, "issuerTin")
    issued_at: datetime | None = _member(instant, "dateTimeIssued")
    status: PortalStatus = _member(_status, "status", is_required=True)
    long_id: str | None = _member(opaque, "longId")  # only after it became Valid
    received_at: datetime | None = _member(_past, "dateTimeReceived")
    validated_at: datetime | None = _member(_past, "dateTimeValidated")
    cancelled_at: datetime | None = _member(_past, "cancelDateTime")
    rejection_requested_at: datetime | None = _member(_past, "rejectRequestDateTime")
    #: Given with a cancellation or a rejection.
    reason: str | None = _member(text, "documentStatusReason")
    supplier_tin: str | None = _member(_name, "supplierTin")
    supplier_name: str | None = _member(_name, "supplierName")
    buyer_tin: str | None = _member(_name, "buyerTin")
    buyer_name: str | None = _member(_name, "buyerName")
    receiver_name: str | None = _member(_name, "receiverName")  # the party that is not the issuer
    #: Amounts in MYR.
    payable: Decimal | None = _member(_amount, "totalPayableAmount", "total")
    excluding_tax: Decimal | None = _member(_amount, "totalExcludingTax")
    net: Decimal | None = _member(_amount, "totalNetAmount", "netAmount")
    errors: list[ErrorEntry] = field(default_factory=list)
    content: str | None = field(default=None, repr=False)  # the document as it was submitted
    #: The members that could not be read or have unknown values.
    odd: OddRow | None = field(default=None, repr=False, compare=False)


_MEMBERS: dict[str, _Member] = {
    each.name: each.metadata["member"] for each in fields(Document) if each.metadata
}
#: The members without which a row is not a document. The others are omitted if unreadable.
_IDENTITY = {name: _MEMBERS[name] for name in _MEMBERS if name in OddRow.__dataclass_fields__}
_OTHERS = {name: _MEMBERS[name] for name in _MEMBERS if name not in _IDENTITY}


def read_document(row: JsonObject, errors: Iterable[ErrorEntry] = ()) -> Document:
    """Read folded members. Raises Unreadable if an identifying member cannot be read."""
    found = _read_row(row, errors)
    if isinstance(found, OddRow):
        raise Unreadable(found.problems[0])
    return found


def read_rows(body: JsonObject, name: str) -> tuple[list[Document], list[OddRow]]:
    """Read the rows of a list one by one, and return those that could not be read apart."""
    values = body.get(name.lower())
    if values is None:
        return [], []
    if not isinstance(values, list):
        raise Unreadable(f"{name} is not a list.")
    if len(values) > MOST_PAGE_ROWS:
        raise Unreadable(f"{name} has more than {MOST_PAGE_ROWS} rows.")
    found = [
        _read_row(fold_members(value)) if isinstance(value, dict) else _no_object(value)
        for value in values
    ]
    return [one for one in found if isinstance(one, Document)], [
        one for one in found if isinstance(one, OddRow)
    ]


def _read_row(row: JsonObject, errors: Iterable[ErrorEntry] = ()) -> Document | OddRow:
    """Read one row. Unknown members are ignored, and unreadable ones that do not identify it."""
    problems: list[str] = []
    identity = _read_members(row, _IDENTITY, problems)
    if problems:
        return _odd(row, identity, problems)
    others = _read_members(row, _OTHERS, problems)
    if identity["type_code"] is None and (name := text(row.get("typename"))):
        problems.append(f"typeName is unknown: {name[:MOST_VALUE]}.")
    others["status"] = others["status"] or UNKNOWN
    odd = _odd(row, identity, problems) if problems else None
    return Document(**identity, **others, errors=list(errors), odd=odd)


def _read_members(row: JsonObject, members: dict[str, _Member], problems: list[str]) -> _Values:
    """Return the values of members, None for those that have a problem."""
    values: _Values = dict.fromkeys(members)
    for attribute, (names, reader, is_required) in members.items():
        try:
            found = (read_member(row, name, reader) for name in names)
            values[attribute] = next((value for value in found if value is not None), None)
        except Unreadable as error:
            problems.append(str(error))
        else:
            if is_required and values[attribute] is None:
                problems.append(f"{names[0]} is missing.")
    return values


def _odd(row: JsonObject, identity: _Values, problems: list[str]) -> OddRow:
    lasting = [row.get(_IDENTITY[name].names[0].lower()) for name in _IDENTITY if name != "uuid"]
    key = identity["uuid"] or _digest(lasting)
    return OddRow(key, tuple(problems), _shown(row), _digest(row), **identity)


def _no_object(value: object) -> OddRow:
    digest = _digest(value)
    return OddRow(digest, ("The row is not an object.",), _shown(value), digest)


def _shown(value: object) -> str:
    return clean_text(_encode(value).decode())[:MOST_SHOWN]


def _digest(value: object) -> str:
    return "sha256:" + hashlib.sha256(_encode(value)).hexdigest()


def _encode(value: object) -> bytes:
    """Return a value as JSON, or as Python text if it has unpaired surrogates."""
    try:
        return json_codec.encode(value)
    except UnicodeEncodeError:
        return ascii(value).encode()
