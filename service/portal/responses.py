"""Portal responses: reading of their bodies, and the exception that each failure means.

No I/O, no clock. Text from the portal is untrusted: characters that PostgreSQL cannot store are
removed, and lengths are limited.
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
from typing import Any, Concatenate, ParamSpec, TypeVar

from service import json_codec
from service.portal.error_parsing import (
    MOST_ERRORS,
    ErrorEntry,
    authority_code,
    clean_json,
    clean_text,
    flatten_error,
    fold_members,
    login_errors,
)
from service.portal.errors import (
    Duplicate,
    LoginRefused,
    NotSent,
    PortalError,
    Refused,
    Throttled,
    TruncatedListing,
    Unclear,
)

LOGIN_REFUSED = "The portal refuses the login."
MOST_ROWS = 10_000  # rows of one listing; the portal shows no more. Portal: 5.5
MOST_PAGE_ROWS = 1000  # rows of one page, of which 100 are requested
PAUSE = timedelta(seconds=60)  # after a 429 without a Retry-After
PAUSE_LEAST, PAUSE_MOST = timedelta(seconds=1), timedelta(minutes=15)
TOKEN_LIFE = 300  # seconds, where the portal gives none: a 401 renews the token earlier
MOST_TOKEN_LIFE = 86_400  # seconds

STATUSES = {name.lower(): name for name in ("Submitted", "Valid", "Invalid", "Cancelled")}
UNKNOWN = "Unknown"  # the status of a document whose status is none of these
UNREADABLE_REASONS: ErrorEntry = {
    "code": None,
    "path": "",
    "message": "The portal's reasons could not be read.",
}
MOST_SHOWN = 2000  # characters that are stored of a row that could not be read

#: Type name in lower case, letters only -> type code. Portal: 9
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

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The immediate response to a submission. Portal: 4.2

    A number in neither `accepted` nor `rejected` is unaccounted for.
    """

    uid: str | None  # None when nothing was accepted
    accepted: dict[str, str]  # number -> uuid
    rejected: dict[str, list[ErrorEntry]]  # by number
    received_at: datetime | None  # the Date of the response


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the portal shows it. Portal: 5.1, 5.2, 5.3, 5.5

    Only the details request fills `errors`, and only the raw request fills `content`.
    """

    uuid: str
    submission_uid: str | None
    long_id: str | None  # only after it became Valid
    number: str
    type_code: str | None  # "01" to "14"; None for an unknown type name
    version: str | None
    issuer_tin: str | None
    status: str  # Submitted, Valid, Invalid, Cancelled or Unknown
    issued_at: datetime | None
    received_at: datetime | None
    validated_at: datetime | None
    cancelled_at: datetime | None
    rejection_requested_at: datetime | None
    reason: str | None  # given with a cancellation or a rejection
    errors: list[ErrorEntry] = field(default_factory=list)
    supplier_tin: str | None = None
    supplier_name: str | None = None
    buyer_tin: str | None = None
    buyer_name: str | None = None
    receiver_name: str | None = None  # the party that is not the issuer
    payable: Decimal | None = None  # amounts in MYR; None where missing or unreadable
    excluding_tax: Decimal | None = None
    net: Decimal | None = None
    content: str | None = field(default=None, repr=False)  # the document as it was submitted
    status_text: str | None = field(default=None, compare=False)  # as the portal wrote it
    #: The members that could not be read or have unknown values.
    odd: "OddRow | None" = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OddRow:
    """A row of a listing with a member that could not be read or has an unknown value.

    The identifying members are None where they were missing or could not be read.
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


class Listing(list[Document]):
    """The documents of a listing, newest first. `odd` has the rows that could not be read."""

    def __init__(self, rows: Iterable[Document] = (), odd: Iterable[OddRow] = ()) -> None:
        super().__init__(rows)
        self.odd = list(odd)


@dataclass(frozen=True, slots=True)
class SubmissionState:
    """The validation state of a submission. Portal: 5.1"""

    uid: str
    overall: str  # lower case without blanks: inprogress, valid, ...; "" if missing
    documents: list[Document]
    received_at: datetime | None
    odd: list[OddRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing, with the listing's totals."""

    rows: list[Document]
    count: int  # rows on all pages
    last: int | None = None  # number of the last page; missing for a submission
    overall: str | None = None  # only for a submission
    received_at: datetime | None = None  # only for a submission
    odd: list[OddRow] = field(default_factory=list)  # rows that could not be read

    @property
    def keys(self) -> list[str]:
        """Return a key for each row."""
        return [row.uuid for row in self.rows] + [row.uuid or row.digest for row in self.odd]


@dataclass(frozen=True, slots=True)
class PortalResponse:
    """An HTTP response. `broken` says why the body is incomplete and is empty if it is complete."""

    operation: str
    status: int
    headers: Mapping[str, str]  # case-insensitive
    raw: bytes = field(repr=False)  # not logged: the response to a login holds the token
    at: datetime  # arrival, by the clock of this process
    broken: str = ""

    @property
    def date(self) -> datetime | None:
        """Return the portal's clock from the Date header, to the second; None without one."""
        return _http_date(self.headers.get("Date", ""))

    @property
    def correlation_id(self) -> str | None:
        """Return the portal's id of the request, which its support asks for. Portal: 1.3"""
        text = self.headers.get("correlationId", "")
        return text if _CORRELATION.fullmatch(text) else None

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def is_json(self) -> bool:
        return self.media_type == "application/json" or self.media_type.endswith("+json")

    @property
    def is_page(self) -> bool:
        """Return whether this is a web page, of a gateway or a firewall and never of the portal."""
        return "html" in self.media_type


class Unreadable(ValueError):
    """A member of a response is missing or invalid."""


def check(response: PortalResponse, expected: int) -> None:
    """Raise the exception for any status but `expected`. The caller handles a 401. Portal: 8.4"""
    status = response.status
    if status == expected:
        return
    if status == 429:  # by the status alone: its body may be empty or plain text. Portal: 1.6
        raise _later(Throttled, response, "The portal throttled the request.")
    if status == 408 or not 400 <= status < 500:
        raise _unclear(response, f"The portal responded with status {status}.")
    raise _refusal(response)


def reader(
    parse: Callable[Concatenate[PortalResponse, dict[str, Any], P], T],
) -> Callable[Concatenate[PortalResponse, P], T]:
    """Decorate a function that reads a JSON object, so that Unreadable becomes Unclear.

    The function is called with the response, its folded body and the further arguments.
    """

    @wraps(parse)
    def read(response: PortalResponse, *args: P.args, **more: P.kwargs) -> T:
        try:
            return parse(response, _body(response), *args, **more)
        except Unreadable as error:
            raise _unclear(response, str(error)) from None

    return read


@reader
def receipt(response: PortalResponse, body: dict[str, Any]) -> Receipt:
    """Read the 202 response to a submission. Raises Unclear, with evidence. Portal: 4.2"""
    if body.get("accepteddocuments") is None and body.get("rejecteddocuments") is None:
        raise Unreadable("The response lists no documents.")
    accepted, rejected = _rows(body, "acceptedDocuments"), _rows(body, "rejectedDocuments")
    uid = (_required_id if accepted else _id)(body, "submissionUid")
    uuids = {_number(row, "invoiceCodeNumber"): _required_id(row, "uuid") for row in accepted}
    refusals = {
        _number(row, "invoiceCodeNumber"): flatten_error(row.get("error")) for row in rejected
    }
    if len(uuids.keys() | refusals.keys()) < len(accepted) + len(rejected):
        raise Unreadable("The response lists a document twice.")
    return Receipt(uid, uuids, refusals, response.date)


@reader
def submission_page(_response: PortalResponse, body: dict[str, Any], uid: str) -> Page:
    """Read a page of a submission. Raises Unclear. Portal: 5.1"""
    _check_same(body, "submissionUid", uid)
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
def listing_page(response: PortalResponse, body: dict[str, Any]) -> Page:
    """Read a page of a search or of the recent documents. Raises Unclear. Portal: 5.5"""
    counts = body.get("metadata")
    if not isinstance(counts, dict) or body.get("result") is None:
        raise Unreadable("The response is not a listing.")
    counts = fold_members(counts)
    count, last = _count(counts, "totalCount"), _count(counts, "totalPages")
    if count >= MOST_ROWS:
        raise TruncatedListing(
            f"The portal lists at most {MOST_ROWS} documents; request a shorter time range.",
            correlation_id=response.correlation_id,
        )
    rows, odd = _documents(body, "result")
    return Page(rows, count, last, odd=odd)


@reader
def details(_response: PortalResponse, body: dict[str, Any], uuid: str) -> Document:
    """Read the details of a document, with its validation errors. Raises Unclear. Portal: 5.2"""
    _check_same(body, "uuid", uuid)
    return _document(body, _reasons(body.get("validationresults")))


def _reasons(results: Any) -> list[ErrorEntry]:
    """Return the validation errors of a document; UNREADABLE_REASONS if they cannot be read."""
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
def raw(_response: PortalResponse, body: dict[str, Any], uuid: str) -> Document:
    """Read a document with its `content`. Raises Unclear. Portal: 5.3"""
    _check_same(body, "uuid", uuid)
    content = body.get("document")
    if not isinstance(content, str) or not content:
        raise Unreadable("The response has no document.")
    return replace(_document(body), content=content)


@reader
def cancelled(response: PortalResponse, body: dict[str, Any], uuid: str) -> None:
    """Check that the document is cancelled. Portal: 6

    Raises Refused if the body has an `error`, else Unclear.
    """
    if body.get("error") is not None:
        raise _refused(response, _json(response))
    _check_same(body, "uuid", uuid)
    if _required_text(body, "status").lower() != "cancelled":
        raise Unreadable("The response does not confirm the cancellation.")


def known_tin(response: PortalResponse) -> None:
    """Accept a 200 with any body but a web page. Raises Unclear. Portal: 3.1"""
    if response.is_page:
        raise _unclear(response, "The response is a web page.")


def login(response: PortalResponse) -> tuple[str, timedelta]:
    """Return the token of a login and its lifetime. Portal: 2, 2.2

    Raises Throttled, LoginRefused, or NotSent for any other failure: the request that needed the
    token was not sent.
    """
    if response.status == 429:
        check(response, 200)
    body = _json(response)
    members = fold_members(body) if isinstance(body, dict) else {}
    if response.status == 200:
        return _token(response, members)
    if _is_login_refusal(response, members):
        raise LoginRefused(
            LOGIN_REFUSED,
            errors=login_errors(members, body),
            correlation_id=response.correlation_id,
            is_client=members.get("error") == "invalid_client",
        )
    raise NotSent(
        f"Login: the portal responded with status {response.status}.",
        correlation_id=response.correlation_id,
    )


def login_refused(response: PortalResponse) -> LoginRefused:
    """Return the LoginRefused for a 401 to a new token."""
    return LoginRefused("The portal refuses a new token.", **_error_facts(response))


class Tally:
    """Counts the rows of a listing page by page, to check in the end that it is complete.

    A listing may grow while it is read. The portal adds rows and deletes none, so a row that is
    listed when the first page is read can only move to later pages: it may be shown twice, and it
    is never skipped. A listing that has grown therefore shows every row that was listed when its
    first page was requested.
    """

    def __init__(self) -> None:
        self.pages = 0
        self._counts: list[int] = []
        self._sizes: list[int] = []
        self._keys: set[str] = set()

    @property
    def rows(self) -> int:
        """Return the number of rows read so far, including those shown twice."""
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
        """Raise Unclear unless the pages show all rows listed when the first one was read."""
        first, last, found = self._counts[0], self._counts[-1], len(self._keys)
        if any(later < earlier for earlier, later in pairwise(self._counts)):
            raise Unclear("The listing lost rows while it was read.")
        if first == last and not self.rows == found == first:
            raise Unclear(f"The listing is incomplete: {self.rows} of {first} rows.")
        if first < last and not (self._is_full(last) and first <= found <= last):
            raise Unclear(f"The listing grew from {first} to {last} rows and showed {found}.")

    def _is_full(self, count: int) -> bool:
        """Return whether all pages but the last have one size and have room for `count` rows."""
        return len(set(self._sizes[:-1])) <= 1 and count <= self._sizes[0] * self.pages


def merge_pages(pages: list[Page]) -> list[Document]:
    """Return the rows of all pages, in order. Raises Unclear unless they are complete."""
    tally = Tally()
    for page in pages:
        tally.add(page)
    tally.check()
    return list({row.uuid: row for page in pages for row in page.rows}.values())


def sightings_in(raw: bytes) -> list[tuple[str, str]]:
    """Return the (number, uuid) pairs in the response to a submission, valid JSON or not."""
    pairs: list[tuple[str, str]] = []
    members: dict[str, str | None] = {}
    for match in _PAIR.finditer(raw.decode("utf-8", "replace") + "}"):
        if match[1]:
            members[match[1].lower()] = _unquote(match[2])
            continue
        number, uuid = members.get("invoicecodenumber"), members.get("uuid")
        if number and uuid and _ID.fullmatch(uuid):
            pairs.append((number, uuid))
        members = {}
    return pairs[:MOST_ERRORS]


def _unquote(text: str) -> str | None:
    try:
        return clean_text(json.loads(text, strict=False))
    except ValueError:
        return None


def instant(text: str) -> datetime:
    """Parse a date-time of the portal as UTC, to the microsecond. Raises ValueError."""
    match = _INSTANT.fullmatch(text)
    if not match:
        raise ValueError("not a date-time")
    moment = datetime.fromisoformat(match[1] + (match[2] or "") + (match[3] or "Z"))
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("not a date-time") from None


# Exceptions


def _refusal(response: PortalResponse) -> PortalError:
    """Return the exception for a 4xx.

    A submission that was not refused in the portal's own format is Unclear.
    """
    body = _json(response)
    if response.operation == "submit":
        if response.status == 422 and authority_code(body) in (None, "DuplicateSubmission"):
            return _later(Duplicate, response, "The portal received the same submission before.")
        if not flatten_error(body):
            return _unclear(
                response,
                f"Refused with status {response.status}, but not in the portal's error format.",
            )
    return _refused(response, body)


def _refused(response: PortalResponse, body: Any) -> Refused:
    code = authority_code(body)
    return Refused(
        f"The portal refuses: {code or f'status {response.status}'}.",
        status=response.status,
        code=code,
        body=clean_json(body),
        errors=flatten_error(body),
        correlation_id=response.correlation_id,
    )


def _unclear(response: PortalResponse, reason: str) -> Unclear:
    may_name_documents = response.operation == "submit" and 200 <= response.status < 300
    return Unclear(
        reason,
        evidence=sightings_in(response.raw) if may_name_documents else (),
        correlation_id=response.correlation_id,
    )


def _later(
    error: type[Throttled] | type[Duplicate], response: PortalResponse, reason: str
) -> Throttled | Duplicate:
    facts = _error_facts(response)
    operation = response.operation
    return error(reason, retry_after=_retry_after(response), operation=operation, **facts)


def _error_facts(response: PortalResponse) -> dict[str, Any]:
    """Return the arguments that every PortalError takes from a response."""
    return {
        "errors": flatten_error(_json(response)),
        "correlation_id": response.correlation_id,
    }


def _retry_after(response: PortalResponse) -> timedelta:
    """Return the pause that Retry-After asks for, within PAUSE_LEAST and PAUSE_MOST.

    The header has whole seconds or a date, which is relative to the response's Date if there is
    one.
    """
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        pause = timedelta(seconds=int(text)) if len(text) < 10 else PAUSE_MOST
    elif moment := _http_date(text):
        pause = moment - (response.date or response.at)
    else:
        pause = PAUSE
    return min(max(pause, PAUSE_LEAST), PAUSE_MOST)


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


# Login


def _token(response: PortalResponse, members: dict[str, Any]) -> tuple[str, timedelta]:
    token, life = members.get("access_token"), members.get("expires_in")
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,7000}", token):
        raise NotSent("Login: the response has no token.", correlation_id=response.correlation_id)
    if not isinstance(life, int) or life <= 0:
        life = TOKEN_LIFE
    return token, timedelta(seconds=min(life, MOST_TOKEN_LIFE))


def _is_login_refusal(response: PortalResponse, members: dict[str, Any]) -> bool:
    """Return whether the portal itself refused the login. Portal: 2.2

    Credentials of another environment are a 403.
    """
    if response.status == 403:
        return not response.is_page
    return response.status in (400, 401) and bool(members.get("error"))


# Members


def _json(response: PortalResponse) -> Any:
    """Return the JSON of a response, or None if it is incomplete or invalid."""
    if response.broken or not response.is_json:
        return None
    try:
        return json_codec.loads(response.raw)
    except json_codec.NotJson:
        return None


def _body(response: PortalResponse) -> dict[str, Any]:
    if response.broken:
        raise Unreadable(f"The response is incomplete: {response.broken}.")
    body = _json(response)
    if not isinstance(body, dict):
        raise Unreadable("The response is not a JSON object.")
    return fold_members(body)


def _document(row: dict[str, Any], errors: Iterable[ErrorEntry] = ()) -> Document:
    """Read folded members. Raises Unreadable if an identifying member cannot be read."""
    found = _document_or_odd(row, errors)
    if isinstance(found, OddRow):
        raise Unreadable(found.problems[0])
    return found


def _documents(body: dict[str, Any], name: str) -> tuple[list[Document], list[OddRow]]:
    """Read the rows of a list one by one, and return those that could not be read apart."""
    values = body.get(name.lower())
    if values is None:
        return [], []
    if not isinstance(values, list):
        raise Unreadable(f"{name} is not a list.")
    if len(values) > MOST_PAGE_ROWS:
        raise Unreadable(f"{name} has more than {MOST_PAGE_ROWS} rows.")
    found = [
        _document_or_odd(fold_members(value)) if isinstance(value, dict) else _no_object(value)
        for value in values
    ]
    return [one for one in found if isinstance(one, Document)], [
        one for one in found if isinstance(one, OddRow)
    ]


def _no_object(value: Any) -> OddRow:
    digest = _digest(value)
    return OddRow(digest, ("The row is not an object.",), _shown(value), digest)


def _document_or_odd(row: dict[str, Any], errors: Iterable[ErrorEntry] = ()) -> Document | OddRow:
    """Read one row. Unknown members are ignored, and unreadable ones that do not identify it."""
    problems: list[str] = []
    type_name = _member(row, problems, _text, "typeName")
    identity: dict[str, Any] = {
        "uuid": _member(row, problems, _required_id, "uuid"),
        "submission_uid": _member(row, problems, _id, "submissionUid"),
        "number": _member(row, problems, _number, "internalId"),
        "type_code": TYPES.get(re.sub("[^a-z]", "", (type_name or "").lower())),
        "issuer_tin": _member(row, problems, _text, "issuerTin"),
        "issued_at": _member(row, problems, _instant, "dateTimeIssued"),
    }
    if problems:
        return _odd(row, identity, problems)
    status_text = _member(row, problems, _required_text, "status")
    status = STATUSES.get((status_text or "").lower(), UNKNOWN)
    if status_text and status == UNKNOWN:
        problems.append(f"The status is unknown: {status_text[:40]}.")
    if type_name and identity["type_code"] is None:
        problems.append(f"The type is unknown: {type_name[:40]}.")
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
    row: dict[str, Any],
    problems: list[str],
    read: Callable[[dict[str, Any], str], T],
    name: str,
) -> T | None:
    """Return a member as `read` parses it; if it is Unreadable, add a problem and return None."""
    try:
        return read(row, name)
    except Unreadable as error:
        problems.append(str(error))
        return None


def _odd(row: dict[str, Any], identity: dict[str, Any], problems: list[str]) -> OddRow:
    lasting = [
        row.get(name)
        for name in ("internalid", "typename", "issuertin", "datetimeissued", "submissionuid")
    ]
    key = identity["uuid"] or _digest(lasting)
    return OddRow(key, tuple(problems), _shown(row), _digest(row), **identity)


def _shown(value: Any) -> str:
    return clean_text(_encode(value).decode())[:MOST_SHOWN]


def _digest(value: Any) -> str:
    return "sha256:" + hashlib.sha256(_encode(value)).hexdigest()


def _encode(value: Any) -> bytes:
    """Return a value as JSON, or as Python text if it has unpaired surrogates."""
    try:
        return json_codec.encode(value)
    except UnicodeEncodeError:
        return ascii(value).encode()


def _parties(row: dict[str, Any]) -> dict[str, Any]:
    """Return the parties of a row. A member that is not a string counts as missing."""
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


def _amounts(row: dict[str, Any]) -> dict[str, Any]:
    """Return the amounts of a row, in MYR. Their names differ by operation. Portal: 5.1, 5.5"""
    return {
        "payable": _amount(row, "totalpayableamount", "total"),
        "excluding_tax": _amount(row, "totalexcludingtax"),
        "net": _amount(row, "totalnetamount", "netamount"),
    }


def _amount(row: dict[str, Any], *names: str) -> Decimal | None:
    """Return the first of the named members that is a number, else None."""
    for name in names:
        number = row.get(name)
        if type(number) is int or type(number) is Decimal:
            return Decimal(number)
    return None


def _text(row: dict[str, Any], name: str) -> str | None:
    """Return a cleaned string; None if it is null, empty or missing."""
    value = row.get(name.lower())
    if value is not None and not isinstance(value, str):
        raise Unreadable(f"{name} is not a string.")
    return clean_text(value) if value else None


def _required_text(row: dict[str, Any], name: str) -> str:
    value = row.get(name.lower())
    text = _text(row, name)
    if not value or text is None:
        raise Unreadable(f"{name} is missing.")
    return text


def _number(row: dict[str, Any], name: str) -> str:
    """Return a document number unchanged: cleaned, it could be another document's number."""
    value = _required_text(row, name)
    if value != row[name.lower()]:
        raise Unreadable(f"{name} is not a document number.")
    return value


def _id(row: dict[str, Any], name: str) -> str | None:
    """Return an identifier of the portal, which is safe in a URL."""
    value = _text(row, name)
    if value is not None and not _ID.fullmatch(value):
        raise Unreadable(f"{name} is not an identifier.")
    return value


def _required_id(row: dict[str, Any], name: str) -> str:
    value = _id(row, name)
    if value is None:
        raise Unreadable(f"{name} is missing.")
    return value


def _check_same(row: dict[str, Any], name: str, expected: str) -> None:
    if _required_id(row, name).upper() != expected.upper():
        raise Unreadable(f"The response is about another {name}.")


def _instant(row: dict[str, Any], name: str) -> datetime | None:
    text = _text(row, name)
    try:
        return instant(text) if text else None
    except ValueError:
        raise Unreadable(f"{name} is not a date-time.") from None


def _count(row: dict[str, Any], name: str) -> int:
    value = row.get(name.lower())
    if type(value) is not int or value < 0:
        raise Unreadable(f"{name} is not a count.")
    return value


def _rows(row: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a list, folded; an empty list for null."""
    values = row.get(name.lower())
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise Unreadable(f"{name} is not a list of objects.")
    return [fold_members(value) for value in values]
