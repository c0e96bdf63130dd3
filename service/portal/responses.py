"""Portal responses: reading of their bodies, and the exception that each failure means.

No I/O, no clock. Text from the portal is untrusted: characters that PostgreSQL cannot store are
removed, and lengths are limited.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from service import json_codec
from service.json_types import Json, JsonObject
from service.portal.documents import Document, read_document, read_rows
from service.portal.errors import (
    Duplicate,
    LoginRefused,
    NotSent,
    Refused,
    Throttled,
    TruncatedListing,
    Unclear,
)
from service.portal.listings import MOST_ROWS, ListingPage
from service.portal.parsing import (
    ID,
    MOST_ERRORS,
    ErrorEntry,
    Unreadable,
    authority_code,
    check_same,
    clean_json,
    clean_text,
    count,
    flatten_error,
    fold_members,
    identifier,
    is_portal_error,
    login_errors,
    number,
    objects,
    read_member,
    require,
    text,
)

LOGIN_REFUSED = "The portal refuses the login."
PAUSE = timedelta(seconds=60)  # after a 429 without a Retry-After
PAUSE_LEAST, PAUSE_MOST = timedelta(seconds=1), timedelta(minutes=15)
TOKEN_LIFE = 300  # seconds, where the portal gives none: a 401 renews the token earlier
MOST_TOKEN_LIFE = 86_400  # seconds
UNREADABLE_REASONS: ErrorEntry = {
    "code": None,
    "path": "",
    "message": "The portal's reasons could not be read.",
}

_CORRELATION = re.compile(r"[0-9A-Za-z:._-]{1,64}")
_PAIR = re.compile(
    r'"(uuid|invoiceCodeNumber)"\s*:\s*("(?:[^"\\]|\\.){1,200}")|[{}]', re.IGNORECASE
)

T = TypeVar("T")


class SubmissionReceipt(NamedTuple):
    """The immediate response to a submission. Portal: 4.2

    A number in neither `accepted` nor `rejected` is unaccounted for.
    """

    uid: str | None  # None when nothing was accepted
    accepted: dict[str, str]  # number -> uuid
    rejected: dict[str, list[ErrorEntry]]  # by number
    received_at: datetime | None = None  # the Date of the response


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
    def json(self) -> Json:
        """Return the JSON of the body, or None if it is incomplete or invalid."""
        is_json = self.media_type == "application/json" or self.media_type.endswith("+json")
        if self.broken or not is_json:
            return None
        try:
            return json_codec.loads(self.raw)
        except json_codec.NotJson:
            return None

    @property
    def body(self) -> JsonObject:
        """Return the folded members of the body. Raises Unreadable if it is not an object."""
        if self.broken:
            raise Unreadable(f"The response is incomplete: {self.broken}.")
        body = self.json
        if not isinstance(body, dict):
            raise Unreadable("The response is not a JSON object.")
        return fold_members(body)

    @property
    def is_page(self) -> bool:
        """Return whether this is a web page, of a gateway or a firewall and never of the portal."""
        return "html" in self.media_type


# Exceptions


def read(response: PortalResponse, parse: Callable[[PortalResponse], T]) -> T:
    """Return what `parse` makes of a response with the status of a success.

    Raises the exception of any other status, Unclear with the uuids that the response to a
    submission shows, if it is Unreadable.
    """
    _check(response)
    try:
        return parse(response)
    except Unreadable as error:
        raise _unclear(response, str(error)) from None


def _check(response: PortalResponse) -> None:
    """Raise the exception for any status but that of a success. Portal: 8.4

    A 401 is that to a new token: the caller handles the first one. A submission that was not
    refused in the portal's own format is Unclear.
    """
    status, is_submit = response.status, response.operation == "submit"
    if status == (202 if is_submit else 200):
        return
    body = response.json
    errors = flatten_error(body)
    facts: dict[str, Any] = {"errors": errors, "correlation_id": response.correlation_id}
    if status == 429:  # by the status alone: its body may be empty or plain text. Portal: 1.6
        raise Throttled(
            "The portal throttled the request.",
            retry_after=_retry_after(response),
            operation=response.operation,
            **facts,
        )
    if status == 408 or not 400 <= status < 500:
        raise _unclear(response, f"The portal responded with status {status}.")
    if status == 401:
        raise LoginRefused("The portal refuses a new token.", **facts)
    if is_submit and status == 422 and authority_code(body) == Duplicate.code:
        raise Duplicate("The portal received the same submission before.", **facts)
    if is_submit and not (errors and is_portal_error(body)):
        reason = f"Refused with status {status}, but not in the portal's error format."
        raise _unclear(response, reason)
    raise _refused(response, body)


def _refused(response: PortalResponse, body: Json) -> Refused:
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
        evidence=sightings_in(response.raw) if may_name_documents else [],
        correlation_id=response.correlation_id,
    )


def sightings_in(raw: bytes) -> list[tuple[str, str]]:
    """Return the (number, uuid) pairs in the response to a submission, valid JSON or not."""
    pairs: list[tuple[str, str]] = []
    members: dict[str, str | None] = {}
    for match in _PAIR.finditer(raw.decode("utf-8", "replace") + "}"):
        if match[1]:
            members[match[1].lower()] = _unquote(match[2])
            continue
        number, uuid = members.get("invoicecodenumber"), members.get("uuid")
        if number and uuid and ID.fullmatch(uuid):
            pairs.append((number, uuid))
        members = {}
    return pairs[:MOST_ERRORS]


def _unquote(text: str) -> str | None:
    try:
        return clean_text(json.loads(text, strict=False))
    except ValueError:
        return None


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


def login(response: PortalResponse) -> tuple[str, timedelta]:
    """Return the token of a login and its lifetime. Portal: 2, 2.2

    Raises Throttled, LoginRefused, or NotSent for any other failure: the request that needed the
    token was not sent.
    """
    status, body = response.status, response.json
    members = fold_members(body) if isinstance(body, dict) else {}
    if status == 200:
        return _token(response, members)
    if status == 429:
        _check(response)
    # Credentials of another environment are a 403.
    is_refusal = not response.is_page if status == 403 else bool(members.get("error"))
    if status in (400, 401, 403) and is_refusal:
        raise LoginRefused(
            LOGIN_REFUSED,
            errors=login_errors(members, body),
            correlation_id=response.correlation_id,
            is_client=members.get("error") == "invalid_client",
        )
    raise NotSent(
        f"Login: the portal responded with status {status}.", correlation_id=response.correlation_id
    )


def _token(response: PortalResponse, members: JsonObject) -> tuple[str, timedelta]:
    token, life = members.get("access_token"), members.get("expires_in")
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,7000}", token):
        raise NotSent("Login: the response has no token.", correlation_id=response.correlation_id)
    if not isinstance(life, int) or life <= 0:
        life = TOKEN_LIFE
    return token, timedelta(seconds=min(life, MOST_TOKEN_LIFE))


# Bodies. The functions raise Unreadable.


def receipt(response: PortalResponse) -> SubmissionReceipt:
    """Read the 202 response to a submission. Portal: 4.2"""
    body = response.body
    if body.get("accepteddocuments") is None and body.get("rejecteddocuments") is None:
        raise Unreadable("The response lists no documents.")
    accepted, rejected = (
        read_member(body, name, objects) for name in ("acceptedDocuments", "rejectedDocuments")
    )
    uid = (require if accepted else read_member)(body, "submissionUid", identifier)
    uuids = {
        require(row, "invoiceCodeNumber", number): require(row, "uuid", identifier)
        for row in accepted
    }
    refusals = {
        require(row, "invoiceCodeNumber", number): (
            flatten_error(row.get("error")) or [UNREADABLE_REASONS]
        )
        for row in rejected
    }
    if len(uuids.keys() | refusals.keys()) < len(accepted) + len(rejected):
        raise Unreadable("The response lists a document twice.")
    return SubmissionReceipt(uid, uuids, refusals, response.date)


def submission_page(response: PortalResponse, uid: str) -> ListingPage:
    """Read a page of a submission. Portal: 5.1"""
    body = response.body
    check_same(body, "submissionUid", uid)
    rows, odd = read_rows(body, "documentSummary")
    return ListingPage(rows, read_member(body, "documentCount", count), odd=odd)


def listing_page(response: PortalResponse) -> ListingPage:
    """Read a page of a search. Portal: 5.5"""
    body = response.body
    counts = body.get("metadata")
    if not isinstance(counts, dict) or body.get("result") is None:
        raise Unreadable("The response is not a listing.")
    total, last = (
        read_member(fold_members(counts), name, count) for name in ("totalCount", "totalPages")
    )
    if total >= MOST_ROWS:
        raise TruncatedListing(
            f"The portal lists at most {MOST_ROWS} documents; request a shorter time range.",
            correlation_id=response.correlation_id,
        )
    rows, odd = read_rows(body, "result")
    return ListingPage(rows, total, last, odd)


def details(response: PortalResponse, uuid: str) -> Document:
    """Read the details of a document, with its validation errors. Portal: 5.2"""
    body = response.body
    check_same(body, "uuid", uuid)
    return read_document(body, _reasons(body.get("validationresults")))


def _reasons(results: object) -> list[ErrorEntry]:
    """Return the validation errors of a document; UNREADABLE_REASONS if they cannot be read."""
    if results is None:
        return []
    if not isinstance(results, dict):
        return [UNREADABLE_REASONS]
    try:
        steps = read_member(fold_members(results), "validationSteps", objects)
    except Unreadable:
        return [UNREADABLE_REASONS]
    return flatten_error(
        [step.get("error") for step in steps if str(step.get("status")).lower() == "invalid"]
    )


def raw(response: PortalResponse, uuid: str) -> Document:
    """Read a document with its `content`. Portal: 5.3"""
    body = response.body
    check_same(body, "uuid", uuid)
    content = body.get("document")
    if not isinstance(content, str) or not content:
        raise Unreadable("The response has no document.")
    return replace(read_document(body), content=content)


def cancelled(response: PortalResponse, uuid: str) -> None:
    """Check that the document is cancelled. Portal: 6

    Raises Refused if the body has an `error`.
    """
    body = response.body
    if body.get("error") is not None:
        raise _refused(response, response.json)
    check_same(body, "uuid", uuid)
    if require(body, "status", text).lower() != "cancelled":
        raise Unreadable("The response does not confirm the cancellation.")


def known_tin(response: PortalResponse) -> None:
    """Accept a 200 with any body but a web page. Portal: 3.1"""
    if response.is_page:
        raise Unreadable("The response is a web page.")
