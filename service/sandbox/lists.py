"""Lists of documents: recent and search. Portal: 5.4, 5.5"""

import math
import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from .answers import answer, bad_argument
from .clock import seconds_of
from .controls import CALLER, SANDBOX, Sandbox
from .database import Row, sql
from .document import IDENTITY_SCHEMES
from .paging import read_page, read_query
from .records import listed

MAX_SPAN = 31 * 24 * 3600
MAX_ROWS = 10_000
STATUSES = {"Submitted", "Valid", "Invalid", "Cancelled"}
#: Direction in a query -> (sent documents, received documents).
DIRECTIONS = {"Sent": (True, False), "Received": (False, True), None: (True, True)}
#: Name of a time span in a query -> prefix of the filters that it sets.
SPANS = {"submissionDate": "received", "issueDate": "issued"}
SEARCHABLE = re.compile(r"[\w .,/&@()-]*")

Query = Mapping[str, str]
Filters = dict[str, Any]


async def search(request: web.Request) -> web.Response:
    """Return a page of the documents that match a query with at least one time span."""
    query = read_query(request)
    spans = read_spans(query)
    if not spans:
        raise bad_argument(
            "submissionDateFrom", "A pair of submission dates or of issue dates is required."
        )
    text = query.get("searchQuery") or None
    if text and not SEARCHABLE.fullmatch(text):
        raise bad_argument("searchQuery", "searchQuery has special characters.")
    filters = {**read_filters(query), **spans, "uuid": query.get("uuid") or None, "text": text}
    return answer(list_page(request, query, filters, "TIN"))


async def recent(request: web.Request) -> web.Response:
    """Return a page of the documents of the last 31 days."""
    query = read_query(request)
    since = {"received_from": request.app[SANDBOX].now() - MAX_SPAN}
    filters = {**read_filters(query), **since, **read_spans(query), **read_counterpart(query)}
    return answer(list_page(request, query, filters, "Tin"))


def list_page(
    request: web.Request, query: Query, filters: Filters, tin_suffix: str
) -> dict[str, Any]:
    """Return a page of rows with the totals of the list."""
    sandbox, caller = request.app[SANDBOX], request[CALLER]
    size, skip = read_page(query)
    values = {**NO_FILTERS, **filters, **read_scope(sandbox, caller, query)}
    rows = sql.document_page(
        sandbox.db, **values, size=min(size, max(0, MAX_ROWS - skip)), skip=skip
    )
    first = rows or sql.document_page(sandbox.db, **values, size=1, skip=0)
    total = min(MAX_ROWS, first[0]["total"] if first else 0)
    return {
        "result": [sandbox.row_shown(row["number"], listed(row, tin_suffix)) for row in rows],
        "metadata": {"totalPages": math.ceil(total / size), "totalCount": total},
    }


#: Every filter of the statement, disabled.
NO_FILTERS: Filters = dict.fromkeys(
    [
        "received_from",
        "received_to",
        "issued_from",
        "issued_to",
        "uuid",
        "status",
        "type",
        "text",
        "receiver_id",
        "receiver_scheme",
        "receiver_tin",
        "issuer_id",
        "issuer_scheme",
        "issuer_tin",
    ]
)


def read_scope(sandbox: Sandbox, caller: Row, query: Query) -> Filters:
    """Return the filters that select the documents of the caller.

    An intermediary sees the documents that it sent itself, and no received ones. Portal: 2.1
    """
    direction = query.get("invoiceDirection") or None
    if direction not in DIRECTIONS:
        raise bad_argument("invoiceDirection", "invoiceDirection is Sent or Received.")
    sent, received = DIRECTIONS[direction]
    return {
        "taxpayer": caller["taxpayer"],
        "client_id": caller["client_id"] if caller["represented"] else None,
        "sent": sent,
        "received": received and not caller["represented"],
        "indexed_until": sandbox.now() - sandbox.controls.search_lag_seconds,
    }


def read_filters(query: Query) -> Filters:
    """Return the filters for status and document type. Raises Refusal."""
    status = query.get("status") or None
    if status and status not in STATUSES:
        raise bad_argument("status", "status is not valid.")
    return {"status": status, "type": query.get("documentType") or None}


def read_spans(query: Query) -> Filters:
    """Return the time spans in Unix seconds, the start included and the end excluded.

    Instants are shown in whole seconds, so the limits are whole seconds too. Raises Refusal.
    """
    ends: Filters = {}
    for name, column in SPANS.items():
        start, end = (read_instant(query, f"{name}{side}") for side in ("From", "To"))
        if start is None and end is None:
            continue
        if start is None or end is None or start >= end or end - start > MAX_SPAN:
            raise bad_argument(
                f"{name}From",
                f"{name}From and {name}To are a pair, in order, at most 31 days apart.",
            )
        ends |= {f"{column}_from": math.floor(start), f"{column}_to": math.floor(end) + 1}
    return ends


def read_instant(query: Query, name: str) -> float | None:
    """Return a date and time of the query in Unix seconds. Raises Refusal."""
    try:
        return seconds_of(query[name]) if query.get(name) else None
    except (ValueError, OverflowError):
        raise bad_argument(name, f"{name} is not a date and time.") from None


def read_counterpart(query: Query) -> Filters:
    """Return the filters for receiver and issuer.

    Receiver filters require direction Sent, issuer filters Received, an id its type. Raises
    Refusal. Portal: 5.4
    """
    filters: Filters = {}
    for who, direction in (("receiver", "Sent"), ("issuer", "Received")):
        kind, value, tin = (query.get(f"{who}{part}") or None for part in ("IdType", "Id", "Tin"))
        if (kind or value or tin) and query.get("invoiceDirection") != direction:
            raise bad_argument(f"{who}Tin", f"{who} filters need InvoiceDirection {direction}.")
        if bool(kind) != bool(value) or kind not in (None, *IDENTITY_SCHEMES):
            raise bad_argument(f"{who}IdType", f"{who}Id and {who}IdType come together.")
        filters |= {f"{who}_id": value, f"{who}_scheme": kind, f"{who}_tin": tin}
    return filters
