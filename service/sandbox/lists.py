"""Lists of documents, recent and search, and of notifications. Portal: 5.4, 5.5, 5.6"""

import math
import re

from service.documents.codes import get_names

from .answers import Body, bad_argument
from .controls import Call, instant
from .database import Row
from .queries import Query, read_choice, read_identity, read_instant, read_page
from .records import listed

MAX_SPAN = 31 * 24 * 3600
MAX_ROWS = 10_000
STATUSES = ("Submitted", "Valid", "Invalid", "Cancelled")
SEARCHABLE = re.compile(r"[\w .,/&@()-]*")
Filters = dict[str, object]

#: Number of a type of notification that occurs -> name.
NOTIFICATION_TYPES = {
    "6": "Document received",
    "7": "Document validated",
    "8": "Document cancelled",
    "15": "Document rejection initiated",
}
#: Numbers of types about profiles, ERP data, summaries and templates.
OTHER_TYPES = ("3", "10", "11", "26", "33", "34", "35")
#: Numbers of statuses: new, pending, batched, delivered, error.
DELIVERY_STATUSES = ("1", "2", "3", "4", "5")
DELIVERED = "4"


def search(call: Call) -> Body:
    """Return a page of the documents that match a query with at least one time span."""
    query = call.query
    spans = read_spans(query)
    if not any(spans.values()):
        raise bad_argument(
            "submissionDateFrom", "A pair of submission dates or of issue dates is required."
        )
    text = query.get("searchQuery", "")
    if not SEARCHABLE.fullmatch(text):
        raise bad_argument("searchQuery", "searchQuery has special characters.")
    filters = {**spans, **read_counterpart({}), "uuid": query.get("uuid"), "text": text}
    return list_page(call, filters, "TIN")


def recent(call: Call) -> Body:
    """Return a page of the documents of the last 31 days."""
    query = call.query
    filters = {**read_spans(query), **read_counterpart(query), "uuid": None, "text": None}
    filters["received_from"] = filters["received_from"] or call.sandbox.now() - MAX_SPAN
    return list_page(call, filters, "Tin")


def list_page(call: Call, filters: Filters, tin_suffix: str) -> Body:
    """Return a page of rows with the totals of the list."""
    sandbox = call.sandbox
    size, skip = read_page(call.query)
    values = {**filters, **read_scope(call)}
    rows = sandbox.db.document_page(**values, size=min(size, max(0, MAX_ROWS - skip)), skip=skip)
    first = rows or sandbox.db.document_page(**values, size=1, skip=0)
    total = min(MAX_ROWS, first[0]["total"] if first else 0)
    return {
        "result": [sandbox.row_shown(row["number"], listed(row, tin_suffix)) for row in rows],
        "metadata": {"totalPages": math.ceil(total / size), "totalCount": total},
    }


def read_scope(call: Call) -> Filters:
    """Return the filters for the caller, direction, status and document type.

    An intermediary sees the documents that it sent itself, and no received ones. Raises Refusal.
    Portal: 2.1
    """
    caller, query = call.caller, call.query
    direction = read_choice(query, "invoiceDirection", ("Sent", "Received"))
    return {
        "taxpayer": caller["taxpayer"],
        "client_id": caller["client_id"] if caller["represented"] else None,
        "sent": direction != "Received",
        "received": direction != "Sent" and not caller["represented"],
        "status": read_choice(query, "status", STATUSES),
        "type": query.get("documentType"),
        "indexed_until": call.sandbox.now() - call.sandbox.controls.search_lag_seconds,
    }


def read_spans(query: Query) -> Filters:
    """Return the time spans in Unix seconds, the start included and the end excluded.

    Instants are shown in whole seconds, so the limits are whole seconds too. Raises Refusal.
    """
    ends: Filters = {}
    for name, column in (("submissionDate", "received"), ("issueDate", "issued")):
        start, end = (read_instant(query, f"{name}{side}") for side in ("From", "To"))
        if start is not None and end is not None and 0 < end - start <= MAX_SPAN:
            start, end = math.floor(start), math.floor(end) + 1
        elif start is not None or end is not None:
            raise bad_argument(
                f"{name}From",
                f"{name}From and {name}To are a pair, in order, at most 31 days apart.",
            )
        ends |= {f"{column}_from": start, f"{column}_to": end}
    return ends


def read_counterpart(query: Query) -> Filters:
    """Return the filters for receiver and issuer.

    Receiver filters require direction Sent, issuer filters Received, an id its type. Raises
    Refusal. Portal: 5.4
    """
    filters: Filters = {}
    for who, direction in (("receiver", "Sent"), ("issuer", "Received")):
        kind, value = read_identity(query, f"{who}IdType", f"{who}Id")
        tin = query.get(f"{who}Tin")
        if (kind or tin) and query.get("invoiceDirection") != direction:
            raise bad_argument(f"{who}Tin", f"{who} filters need InvoiceDirection {direction}.")
        filters |= {f"{who}_id": value, f"{who}_scheme": kind, f"{who}_tin": tin}
    return filters


def list_notifications(call: Call) -> Body:
    """Return a page of the taxpayer's notifications, newest first. Portal: 5.6

    They are derived from the documents. The sandbox delivers each at once, in English.
    """
    query, caller = call.query, call.caller
    size, skip = read_page(query)
    since, until = read_instant(query, "dateFrom"), read_instant(query, "dateTo")
    language = read_choice(query, "language", ("en", "ms"))
    status = read_choice(query, "status", DELIVERY_STATUSES)
    is_shown = language != "ms" and status in (None, DELIVERED)
    rows = call.sandbox.db.notification_page(
        taxpayer=caller["taxpayer"],
        client_id=caller["client_id"] if caller["represented"] else None,
        received=not caller["represented"],
        kind=read_choice(query, "type", (*NOTIFICATION_TYPES, *OTHER_TYPES)),
        # Both limits are included, and whole seconds, as instants are shown in whole seconds.
        since=since and math.floor(since),
        until=None if until is None else math.floor(until) + 1,
        size=size + 1 if is_shown else 0,
        skip=skip,
    )
    shown = [show_notification(row) for row in rows[:size]]
    return {"result": shown, "metadata": {"hasNext": len(rows) > size}}


def show_notification(row: Row) -> Body:
    name, at = NOTIFICATION_TYPES[row["kind"]], instant(row["at"])
    document = f"{get_names('document_types')[row['document_type']]} {row['number']}"
    number = f"{row['sequence']}{row['kind']:>02}"
    return {
        "notificationId": number,
        "receiverName": row["receiver_name"],
        "notificationDeliveryId": number,
        "creationDateTime": at,
        "receivedDateTime": at,
        "notificationSubject": f"{name}: {document}",
        "deliveredDateTime": at,
        "typeId": row["kind"],
        "typeName": name,
        "finalMessage": f"{name}: {document} of {row['issuer_name']}, {row['uuid']}.",
        "address": None,
        "language": "en",
        "status": "delivered",
        "deliveryAttempts": [{"attemptDateTime": at, "status": "delivered", "statusDetails": None}],
    }
