"""GET /api/v1.0/notifications/taxpayer: what happened to the documents of a taxpayer. Portal: 5.6

Notifications are derived from the documents. The sandbox delivers each at once, in English.
"""

import math
from typing import Any

from aiohttp import web

from service.documents.codes import get_names

from .answers import answer, bad_argument
from .clock import instant
from .controls import CALLER, SANDBOX
from .database import Row, sql
from .lists import Filters, Query, read_instant
from .paging import read_page, read_query

#: Number of a type of notification -> name.
TYPES = {
    3: "Profile data validation",
    6: "Document received",
    7: "Document validated",
    8: "Document cancelled",
    10: "User profile changed",
    11: "Taxpayer profile changed",
    15: "Document rejection initiated",
    26: "ERP data validation",
    33: "Documents processing summary",
    34: "Document template published",
    35: "Document template deleted",
}
STATUSES = {1: "new", 2: "pending", 3: "batched", 4: "delivered", 5: "error"}
DELIVERED = 4
LANGUAGES = ("en", "ms")


async def list_notifications(request: web.Request) -> web.Response:
    """Return a page of the taxpayer's notifications, newest first."""
    query, caller = read_query(request), request[CALLER]
    size, skip = read_page(query)
    rows = sql.notification_page(
        request.app[SANDBOX].db,
        taxpayer=caller["taxpayer"],
        client_id=caller["client_id"] if caller["represented"] else None,
        received=not caller["represented"],
        type=read_number(query, "type", TYPES),
        **read_span(query),
        size=size + 1 if is_delivered(query) else 0,
        skip=skip,
    )
    shown = [show_notification(row) for row in rows[:size]]
    return answer({"result": shown, "metadata": {"hasNext": len(rows) > size}})


def read_span(query: Query) -> Filters:
    """Return the time span in Unix seconds; both limits are included and optional.

    Instants are shown in whole seconds, so the limits are whole seconds too. Raises Refusal.
    """
    since, until = read_instant(query, "dateFrom"), read_instant(query, "dateTo")
    return {
        "since": since and math.floor(since),
        "until": None if until is None else math.floor(until) + 1,
    }


def is_delivered(query: Query) -> bool:
    """Return whether the query includes delivered notifications in English. Raises Refusal."""
    language = query.get("language") or LANGUAGES[0]
    if language not in LANGUAGES:
        raise bad_argument("language", f"language is one of {', '.join(LANGUAGES)}.")
    status = read_number(query, "status", STATUSES)
    return language == LANGUAGES[0] and status in (None, DELIVERED)


def read_number(query: Query, name: str, names: dict[int, str]) -> int | None:
    """Return a number of the query that has a name, None if it is absent. Raises Refusal."""
    text = query.get(name)
    if not text:
        return None
    number = next((each for each in names if str(each) == text), None)
    if number is None:
        raise bad_argument(name, f"{name} is one of {', '.join(map(str, names))}.")
    return number


def show_notification(row: Row) -> dict[str, Any]:
    """Return a notification in the published shape."""
    name, at = TYPES[row["type"]], instant(row["at"])
    document = f"{get_names('document_types')[row['document_type']]} {row['number']}"
    number = f"{row['sequence']}{row['type']:02}"
    return {
        "notificationId": number,
        "receiverName": row["receiver_name"],
        "notificationDeliveryId": number,
        "creationDateTime": at,
        "receivedDateTime": at,
        "notificationSubject": f"{name}: {document}",
        "deliveredDateTime": at,
        "typeId": str(row["type"]),
        "typeName": name,
        "finalMessage": f"{name}: {document} of {row['issuer_name']}, {row['uuid']}.",
        "address": None,
        "language": LANGUAGES[0],
        "status": STATUSES[DELIVERED],
        "deliveryAttempts": [
            {"attemptDateTime": at, "status": STATUSES[DELIVERED], "statusDetails": None}
        ],
    }
