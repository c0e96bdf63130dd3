"""What the portal answered, read and classed: its error dialects, its documents, its refusals. No I/O, no clock.

All text from the portal is data: what PostgreSQL cannot store is taken out, and lengths are capped.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import wraps
from itertools import pairwise
from typing import Any

from service import json_codec
from service.portal.error_parsing import (
    MOST_ERRORS,
    authority_code,
    clean_json,
    clean_text,
    flatten_error,
    fold_members,
    login_errors,
)
from service.portal.errors import (
    Crowded,
    Duplicate,
    LoginRefused,
    NotSent,
    Refused,
    Throttled,
    Unclear,
)

MOST_ROWS = 10_000  # rows of one listing; the portal shows no more. Portal: 5.5
PAUSE = timedelta(seconds=60)  # when the portal asks for patience and does not say how much
PAUSE_LEAST, PAUSE_MOST = timedelta(seconds=1), timedelta(minutes=15)

STATUSES = {name.lower(): name for name in ("Submitted", "Valid", "Invalid", "Cancelled")}
UNKNOWN = "Unknown"  # the status of a document whose status is none of these
UNREADABLE_REASONS = {
    "code": None,
    "path": "",
    "message": "The portal's reasons could not be read.",
}
MOST_SHOWN = 2000  # characters that are kept of a row that could not be read

#: name of a type, lower case, letters only -> its code. Portal: 9
TYPES = {
    "invoice": "01",
    "creditnote": "02",
    "debitnote": "03",
    "refundnote": "04",
    "selfbilledinvoice": "11",
    "selfbilledcreditnote": "12",
    "selfbilleddebitnote": "13",
    "selfbilledrefundnote": "14",
}

_ID = re.compile(r"[0-9A-Za-z_-]{1,255}")
_CORRELATION = re.compile(r"[0-9A-Za-z:._-]{1,64}")
_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:(\.\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_PAIR = re.compile(
    r'"(uuid|invoiceCodeNumber)"\s*:\s*("(?:[^"\\]|\\.){1,200}")|[{}]', re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The immediate answer to a submit; numbers in neither member are unaccounted for. Portal: 4.2"""

    uid: str | None  # None when nothing was accepted
    accepted: dict  # number -> uuid
    rejected: dict  # number -> [{code, path, message}]
    received_at: datetime | None  # the Date of the answer


@dataclass(frozen=True, slots=True)
class Document:
    """One document as the portal shows it; `errors` is filled by details alone. Portal: 5.1, 5.2, 5.3, 5.5"""

    uuid: str
    submission_uid: str | None
    long_id: str | None  # only once it was Valid
    number: str
    type_code: str | None  # '01' ... '14'; None for a name that is not known
    version: str | None
    issuer_tin: str | None
    status: str  # Submitted, Valid, Invalid, Cancelled, Unknown
    issued_at: datetime | None
    received_at: datetime | None
    validated_at: datetime | None
    cancelled_at: datetime | None
    rejection_requested_at: datetime | None
    reason: str | None  # given with a cancel or a rejection
    errors: list = field(default_factory=list)  # [{code, path, message}]
    supplier_tin: str | None = None
    supplier_name: str | None = None
    buyer_tin: str | None = None
    buyer_name: str | None = None
    receiver_name: str | None = None  # the party that is not the issuer
    payable: Decimal | None = None  # amounts in MYR; None where an answer has none that can be read
    excluding_tax: Decimal | None = None
    net: Decimal | None = None
    # The document as it was submitted; only of a raw call
    content: str | None = field(default=None, repr=False)
    # The status as the portal wrote it
    status_text: str | None = field(default=None, compare=False)
    # What of it could not be read or is not known
    odd: "OddRow | None" = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OddRow:
    """A document as the portal shows it, of which something could not be read or has a value that is not known.

    The members that tell documents apart are None where they could not be read, or were not there.
    """

    key: str  # the uuid, or where that cannot be read a hash of what stays the same of the row
    problems: tuple[str, ...]
    shown: str  # the row, shortened
    digest: str  # of the whole row
    uuid: str | None = None
    number: str | None = None
    type_code: str | None = None
    issued_at: datetime | None = None
    issuer_tin: str | None = None
    submission_uid: str | None = None


class Listing(list):
    """The Documents of a listing, newest first. `odd` has the rows that are none, because they could not be read."""

    def __init__(self, rows: Iterable[Document] = (), odd: Iterable[OddRow] = ()) -> None:
        super().__init__(rows)
        self.odd = list(odd)


@dataclass(frozen=True, slots=True)
class SubmissionState:
    """How validation stands; `overall` is lower case without blanks: inprogress, valid, ... Portal: 5.1"""

    uid: str
    overall: str  # '' where it is not told
    documents: list  # of Document
    received_at: datetime | None
    odd: list[OddRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a listing, and what it says about the whole."""

    rows: list  # of Document
    count: int  # of rows on all pages
    last: int | None = None  # number of the last page; not told for a submission
    overall: str | None = None  # of a submission
    received_at: datetime | None = None  # of a submission
    odd: list[OddRow] = field(default_factory=list)  # rows that could not be read

    @property
    def keys(self) -> list[str]:
        """Return what tells its rows apart."""
        return [row.uuid for row in self.rows] + [row.uuid or row.digest for row in self.odd]


@dataclass(frozen=True, slots=True)
class Answer:
    """A status line with what followed it. `broken` says why the body is not whole; '' when it is."""

    operation: str
    status: int
    headers: Mapping  # case-insensitive
    raw: bytes = field(repr=False)  # of a login it holds the token
    at: datetime  # when it came, by our clock
    broken: str = ""

    @property
    def date(self) -> datetime | None:
        """Return what the portal's clock showed, to the second; None without a Date."""
        return _http_date(self.headers.get("Date", ""))

    @property
    def correlation_id(self):
        """The portal's name for the call, or None: support asks for it. Portal: 1.3"""
        text = self.headers.get("correlationId", "")
        return text if _CORRELATION.fullmatch(text) else None

    @property
    def media_type(self):
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def is_json(self):
        return self.media_type == "application/json" or self.media_type.endswith("+json")

    @property
    def is_page(self):
        """Whether this is a web page: of a gateway, a firewall or a network's sign-in, never of the portal."""
        return "html" in self.media_type


class Unreadable(ValueError):
    """A member of an answer is missing or is not what it must be."""


def check(answer, expected):
    """Raise what any other status than `expected` means. Portal: 8.4; a 401 is the caller's to try again."""
    status = answer.status
    if status == expected:
        return
    if status == 429:  # by the status alone: its body may be empty or plain text. Portal: 1.6
        raise _patience(Throttled, answer, "The portal asks for fewer calls.")
    if status == 408 or not 400 <= status < 500:
        raise _unclear(answer, f"The portal answered with status {status}.")
    raise _refusal(answer)


def reader(function):
    """Makes `function(answer, body)` a reader of an answer's JSON object; what it finds Unreadable is Unclear."""

    @wraps(function)
    def read(answer, *args):
        try:
            return function(answer, _body(answer), *args)
        except Unreadable as fault:
            raise _unclear(answer, str(fault)) from None

    return read


@reader
def receipt(answer, body):
    """The Submission of a 202. Raises Unclear, with evidence. Portal: 4.2"""
    if body.get("accepteddocuments") is None and body.get("rejecteddocuments") is None:
        raise Unreadable("The answer names no documents.")
    accepted, rejected = _rows(body, "acceptedDocuments"), _rows(body, "rejectedDocuments")
    uid = _id(body, "submissionUid", required=bool(accepted))
    uuids = [
        (_number(row, "invoiceCodeNumber"), _id(row, "uuid", required=True)) for row in accepted
    ]
    refusals = [
        (_number(row, "invoiceCodeNumber"), flatten_error(row.get("error"))) for row in rejected
    ]
    if len({number for number, _ in uuids + refusals}) < len(uuids) + len(refusals):
        raise Unreadable("The answer names a document twice.")
    return Receipt(uid, dict(uuids), dict(refusals), _http_date(answer.headers.get("Date", "")))


@reader
def submission_page(answer, body, uid):
    """The Page of a submission. Raises Unclear. Portal: 5.1"""
    _same(body, "submissionUid", uid)
    rows, odd = _documents(body, "documentSummary")
    overall = body.get("overallstatus")
    return Page(
        rows,
        count=_count(body, "documentCount"),
        overall=re.sub("[^a-z]", "", overall.lower()) if isinstance(overall, str) else "",
        received_at=_member(body, [], _instant, "dateTimeReceived"),
        odd=odd,
    )


@reader
def listing_page(answer, body):
    """The Page of a search or of the recent documents. Raises Unclear. Portal: 5.5"""
    counts = body.get("metadata")
    if not isinstance(counts, dict) or body.get("result") is None:
        raise Unreadable("The answer is not a listing.")
    counts = fold_members(counts)
    count, last = _count(counts, "totalCount"), _count(counts, "totalPages")
    if count >= MOST_ROWS:
        raise Crowded(
            f"The portal lists at most {MOST_ROWS} documents; the time range must be smaller.",
            **_said(answer),
        )
    rows, odd = _documents(body, "result")
    return Page(rows, count, last, odd=odd)


@reader
def details(answer, body, uuid):
    """The Document of a details call, with its validation errors. Raises Unclear. Portal: 5.2"""
    _same(body, "uuid", uuid)
    return _document(body, _reasons(body.get("validationresults")))


def _reasons(results: Any) -> list[dict[str, Any]]:
    """Return the validation errors of a document: one that says so where they cannot be read."""
    if results is None:
        return []
    try:
        if not isinstance(results, dict):
            raise Unreadable("validationResults is not an object.")
        steps = _rows(fold_members(results), "validationSteps")
    except Unreadable:
        return [UNREADABLE_REASONS]
    return flatten_error(
        [step.get("error") for step in steps if str(step.get("status")).lower() == "invalid"]
    )


@reader
def raw(answer: Answer, body: dict[str, Any], uuid: str) -> Document:
    """Return the Document of a raw call with its `content`. Raises Unclear. Portal: 5.3"""
    _same(body, "uuid", uuid)
    content = body.get("document")
    if not isinstance(content, str) or not content:
        raise Unreadable("The answer holds no document.")
    return replace(_document(body), content=content)


@reader
def cancelled(answer, body, uuid):
    """Nothing, when the document is cancelled. Raises Refused for a filled `error`, else Unclear. Portal: 6"""
    if body.get("error") is not None:
        raise _refused(answer, _json(answer))
    _same(body, "uuid", uuid)
    if _text(body, "status", required=True).lower() != "cancelled":
        raise Unreadable("The portal does not say that the document is cancelled.")


def known_tin(answer):
    """Nothing, for a 200 that is no web page; its body is not documented. Raises Unclear. Portal: 3.1"""
    if answer.is_page:
        raise _unclear(answer, "A web page came instead of an answer.")


def login(answer):
    """(token, its life as a timedelta) of a login. Raises Throttled, LoginRefused, NotSent. Portal: 2, 2.2

    NotSent: the login was not answered as one, so what it was for has not been sent.
    """
    if answer.status == 429:
        check(answer, 200)
    body = _json(answer)
    members = fold_members(body) if isinstance(body, dict) else {}
    if answer.status == 200:
        return _granted(answer, members)
    if _is_login_refusal(answer, members):
        raise LoginRefused(
            "The portal refuses the login.", **_said(answer, login_errors(members, body))
        )
    raise NotSent(f"Login: the portal answered with status {answer.status}.", **_said(answer))


def login_refused(answer):
    """The LoginRefused of a 401 to a token that was issued just now."""
    return LoginRefused(
        "The portal refuses a new token.", **_said(answer, flatten_error(_json(answer)))
    )


class Tally:
    """Counts the pages of a listing while they are read, to tell in the end whether they show all of it.

    A listing may grow meanwhile. The portal adds rows and deletes none, so that a row which is listed when the first page
    is read can only move towards later pages: it may come twice, and it is not passed over. So a listing that has grown
    shows everything that was listed when its first page was asked for.
    """

    def __init__(self) -> None:
        self.pages = 0
        self._counts: list[int] = []
        self._sizes: list[int] = []
        self._keys: set[str] = set()

    @property
    def rows(self) -> int:
        """Return how many rows came so far, those that came twice included."""
        return sum(self._sizes)

    @property
    def has_grown(self) -> bool:
        return self._counts[-1] > self._counts[0]

    def add(self, page: Page) -> None:
        keys = page.keys
        self.pages += 1
        self._counts.append(page.count)
        self._sizes.append(len(keys))
        self._keys.update(keys)

    def check(self) -> None:
        """Raise Unclear unless the pages show all that was listed when the first one was read."""
        first, last, found = self._counts[0], self._counts[-1], len(self._keys)
        if any(later < earlier for earlier, later in pairwise(self._counts)):
            raise Unclear("The listing lost rows while it was read.")
        if first == last and not self.rows == found == first:
            raise Unclear(f"The listing is not complete: {self.rows} rows of {first}.")
        if first < last and not (self._is_full(last) and first <= found <= last):
            raise Unclear(f"The listing grew from {first} to {last} rows, and {found} were shown.")

    def _is_full(self, count: int) -> bool:
        """Return whether all pages but the last have one size, and that many of them hold `count` rows."""
        return len(set(self._sizes[:-1])) <= 1 and count <= self._sizes[0] * self.pages


def merge_pages(pages: list[Page]) -> list[Document]:
    """Return the rows of all pages, in order. Raises Unclear unless they are complete."""
    tally = Tally()
    for page in pages:
        tally.add(page)
    tally.check()
    return list({row.uuid: row for page in pages for row in page.rows}.values())


def sightings_in(raw):
    """The (number, uuid) pairs that stand in the bytes of an answer to a submit, whole JSON or not."""
    pairs, seen = [], {}
    for match in _PAIR.finditer(raw.decode("utf-8", "replace") + "}"):
        if match[1]:
            seen[match[1].lower()] = _unquoted(match[2])
            continue
        if seen.get("invoicecodenumber") and _ID.fullmatch(seen.get("uuid") or ""):
            pairs.append((seen["invoicecodenumber"], seen["uuid"]))
        seen = {}
    return pairs[:MOST_ERRORS]


def instant(text):
    """An aware time in UTC from the portal's text; digits below a microsecond are dropped. Raises ValueError."""
    match = _INSTANT.fullmatch(text)
    if not match:
        raise ValueError("not a date-time")
    moment = datetime.fromisoformat(match[1] + (match[2] or "") + (match[3] or "Z"))
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("not a date-time") from None


def _refusal(answer):
    """The exception of a 4xx. A submit that the portal itself did not refuse in its own form is Unclear."""
    body = _json(answer)
    if answer.operation == "submit":
        if answer.status == 422 and authority_code(body) in (None, "DuplicateSubmission"):
            return _patience(Duplicate, answer, "The portal received the same submission before.")
        if not flatten_error(body):
            return _unclear(
                answer, f"Something refused with status {answer.status}, not in the portal's form."
            )
    return _refused(answer, body)


def _refused(answer, body):
    said = _said(answer, flatten_error(body))
    code = authority_code(body)
    reason = f"The portal refuses: {code or 'status ' + str(answer.status)}."
    return Refused(reason, status=answer.status, code=code, body=clean_json(body), **said)


def _unclear(answer, reason):
    pairs = (
        sightings_in(answer.raw)
        if answer.operation == "submit" and 200 <= answer.status < 300
        else ()
    )
    return Unclear(reason, evidence=pairs, **_said(answer))


def _patience(error, answer, reason):
    said = _said(answer, flatten_error(_json(answer)))
    return error(reason, retry_after=_retry_after(answer), operation=answer.operation, **said)


def _said(answer, errors=()):
    return {"errors": errors, "correlation_id": answer.correlation_id}


def _retry_after(answer):
    """Retry-After as whole seconds or as a date, counted from the answer's own Date when it has one."""
    text = answer.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        pause = timedelta(seconds=int(text)) if len(text) < 10 else PAUSE_MOST
    elif moment := _http_date(text):
        pause = moment - (_http_date(answer.headers.get("Date", "")) or answer.at)
    else:
        pause = PAUSE
    return min(max(pause, PAUSE_LEAST), PAUSE_MOST)


def _http_date(text):
    """The aware time of an HTTP date, or None."""
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _granted(answer, members):
    token, life = members.get("access_token"), members.get("expires_in")
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,7000}", token):
        raise NotSent("Login: the answer holds no token.", **_said(answer))
    if not isinstance(life, int) or life <= 0:
        life = 300  # ours: long enough not to log in for each call, and a 401 renews it sooner
    return token, timedelta(seconds=min(life, 86_400))


def _is_login_refusal(answer, members):
    """Whether the portal refuses, rather than something before it. Credentials of elsewhere are a 403. Portal: 2.2"""
    if answer.status == 403:
        return not answer.is_page
    return answer.status in (400, 401) and bool(members.get("error"))


def _json(answer):
    """The answer's JSON, or None when there is none that is whole."""
    if answer.broken or not answer.is_json:
        return None
    try:
        return json_codec.loads(answer.raw)
    except json_codec.NotJson:
        return None


def _body(answer):
    if answer.broken:
        raise Unreadable(f"The answer is not whole: {answer.broken}.")
    body = _json(answer)
    if not isinstance(body, dict):
        raise Unreadable("The answer is not a JSON object.")
    return fold_members(body)


def _document(row: dict[str, Any], errors: Iterable[dict[str, Any]] = ()) -> Document:
    """Return the Document of folded members. Raises Unreadable where what tells documents apart cannot be read."""
    found = _document_or_odd(row, errors)
    if isinstance(found, OddRow):
        raise Unreadable(found.problems[0])
    return found


def _documents(body: dict[str, Any], name: str) -> tuple[list[Document], list[OddRow]]:
    """Return the rows of a list, one by one: those that are Documents, and those that could not be read."""
    values = body.get(name.lower())
    if values is None:
        return [], []
    if not isinstance(values, list):
        raise Unreadable(f"{name} is not a list.")
    found = [
        _document_or_odd(fold_members(value)) if isinstance(value, dict) else _no_object(value)
        for value in values
    ]
    return [one for one in found if isinstance(one, Document)], [
        one for one in found if isinstance(one, OddRow)
    ]


def _no_object(value: Any) -> OddRow:
    digest = _digest(value)
    return OddRow(
        digest,
        ("The row is not an object.",),
        clean_text(json_codec.dumps(value))[:MOST_SHOWN],
        digest,
    )


def _document_or_odd(
    row: dict[str, Any], errors: Iterable[dict[str, Any]] = ()
) -> Document | OddRow:
    """Read one row. Members that are not known are ignored, and so are unreadable ones that tell no documents apart."""
    problems: list[str] = []
    type_name = _member(row, problems, _text, "typeName")
    identity = {
        "uuid": _member(row, problems, _id, "uuid", True),
        "submission_uid": _member(row, problems, _id, "submissionUid"),
        "number": _member(row, problems, _number, "internalId"),
        "type_code": TYPES.get(re.sub("[^a-z]", "", (type_name or "").lower())),
        "issuer_tin": _member(row, problems, _text, "issuerTin"),
        "issued_at": _member(row, problems, _instant, "dateTimeIssued"),
    }
    if problems:
        return _odd(row, identity, problems)
    status_text = _member(row, problems, _text, "status", True)
    status = STATUSES.get((status_text or "").lower(), UNKNOWN)
    if status_text and status == UNKNOWN:
        problems.append(f"The status is not known: {status_text[:40]}.")
    if type_name and identity["type_code"] is None:
        problems.append(f"The type is not known: {type_name[:40]}.")
    document = Document(
        **identity,
        status=status,
        status_text=status_text,
        long_id=_member(row, problems, _id, "longId"),
        version=_member(row, problems, _text, "typeVersionName"),
        received_at=_member(row, problems, _instant, "dateTimeReceived"),
        validated_at=_member(row, problems, _instant, "dateTimeValidated"),
        cancelled_at=_member(row, problems, _instant, "cancelDateTime"),
        rejection_requested_at=_member(row, problems, _instant, "rejectRequestDateTime"),
        reason=_member(row, problems, _text, "documentStatusReason"),
        errors=list(errors),
        **_parties(row),
        **_amounts(row),
    )
    return replace(document, odd=_odd(row, identity, problems)) if problems else document


def _member(
    row: dict[str, Any], problems: list[str], read: Callable[..., Any], name: str, *more: Any
) -> Any:
    """Return what `read` makes of a member, or None, with a problem more, where it cannot be read."""
    try:
        return read(row, name, *more)
    except Unreadable as fault:
        problems.append(str(fault))
        return None


def _odd(row: dict[str, Any], identity: dict[str, Any], problems: list[str]) -> OddRow:
    lasting = [
        row.get(name)
        for name in ("internalid", "typename", "issuertin", "datetimeissued", "submissionuid")
    ]
    key = identity["uuid"] or _digest(lasting)
    return OddRow(
        key,
        tuple(problems),
        clean_text(json_codec.dumps(row))[:MOST_SHOWN],
        _digest(row),
        **identity,
    )


def _digest(value: Any) -> str:
    return (
        "sha256:"
        + hashlib.sha256(json_codec.dumps(value).encode("utf-8", "surrogatepass")).hexdigest()
    )


def _parties(row: dict[str, Any]) -> dict[str, str | None]:
    """Return the parties that a row names. A member that is no text counts as absent."""
    names = {
        "supplier_tin": "suppliertin",
        "supplier_name": "suppliername",
        "buyer_tin": "buyertin",
        "buyer_name": "buyername",
        "receiver_name": "receivername",
    }
    given = {name: row.get(member) for name, member in names.items()}
    return {
        name: clean_text(text) if isinstance(text, str) and text.strip() else None
        for name, text in given.items()
    }


def _amounts(row: dict[str, Any]) -> dict[str, Decimal | None]:
    """Return the amounts that a row shows, in MYR. Lists name them differently from the other calls. Portal: 5.1, 5.5"""
    return {
        "payable": _amount(row, "totalpayableamount", "total"),
        "excluding_tax": _amount(row, "totalexcludingtax"),
        "net": _amount(row, "totalnetamount", "netamount"),
    }


def _amount(row: dict[str, Any], *names: str) -> Decimal | None:
    """Return the first of some members that is a number, else None."""
    numbers = (row.get(name) for name in names)
    return next((Decimal(number) for number in numbers if type(number) in (int, Decimal)), None)


def _text(row, name, required=False):
    """A cleaned text; None for null, an empty one or a missing one, unless it is required."""
    value = row.get(name.lower())
    if value is not None and not isinstance(value, str):
        raise Unreadable(f"{name} is not a text.")
    if required and not value:
        raise Unreadable(f"{name} is missing.")
    return clean_text(value) if value else None


def _number(row, name):
    """Our number of a document, as it is: a cleaned or shortened one could be another document's."""
    value = _text(row, name, required=True)
    if value != row[name.lower()]:
        raise Unreadable(f"{name} is not a number of ours.")
    return value


def _id(row, name, required=False):
    """An identifier of the portal, which is safe in an address."""
    value = _text(row, name, required)
    if value is not None and not _ID.fullmatch(value):
        raise Unreadable(f"{name} is not an identifier.")
    return value


def _same(row, name, expected):
    if _id(row, name, required=True).upper() != expected.upper():
        raise Unreadable(f"The answer is about another {name}.")


def _instant(row, name):
    text = _text(row, name)
    try:
        return instant(text) if text else None
    except ValueError:
        raise Unreadable(f"{name} is not a date-time.") from None


def _count(row, name):
    value = row.get(name.lower())
    if type(value) is not int or value < 0:
        raise Unreadable(f"{name} is not a count.")
    return value


def _rows(row, name):
    """The objects of a list, folded; none for null."""
    values = row.get(name.lower())
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise Unreadable(f"{name} is not a list of objects.")
    return [fold_members(value) for value in values]


def _unquoted(text):
    try:
        return clean_text(json.loads(text, strict=False))
    except ValueError:
        return None
