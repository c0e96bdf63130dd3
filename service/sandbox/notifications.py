"""GET /api/v1.0/notifications/taxpayer: what happened to the documents of a taxpayer. Portal: 5.6

Notifications are derived from the documents. The sandbox delivers each at once, in English.
"""

import math

from service.documents.codes import get_names

from .answers import Body
from .controls import Call, instant
from .database import Row
from .queries import read_choice, read_instant, read_page

#: Number of a type of notification that occurs -> name.
TYPES = {
    "6": "Document received",
    "7": "Document validated",
    "8": "Document cancelled",
    "15": "Document rejection initiated",
}
#: Numbers of types about profiles, ERP data, summaries and templates.
OTHER_TYPES = ("3", "10", "11", "26", "33", "34", "35")
#: Numbers of statuses: new, pending, batched, delivered, error.
STATUSES = ("1", "2", "3", "4", "5")
DELIVERED = "4"


def list_notifications(call: Call) -> Body:
    """Return a page of the taxpayer's notifications, newest first."""
    query, caller = call.query, call.caller
    size, skip = read_page(query)
    since, until = read_instant(query, "dateFrom"), read_instant(query, "dateTo")
    # Each is delivered at once, in English.
    language = read_choice(query, "language", ("en", "ms"))
    status = read_choice(query, "status", STATUSES)
    is_shown = language != "ms" and status in (None, DELIVERED)
    rows = call.sandbox.db.notification_page(
        taxpayer=caller["taxpayer"],
        client_id=caller["client_id"] if caller["represented"] else None,
        received=not caller["represented"],
        kind=read_choice(query, "type", (*TYPES, *OTHER_TYPES)),
        # Both limits are included, and whole seconds, as instants are shown in whole seconds.
        since=since and math.floor(since),
        until=None if until is None else math.floor(until) + 1,
        size=size + 1 if is_shown else 0,
        skip=skip,
    )
    shown = [show_notification(row) for row in rows[:size]]
    return {"result": shown, "metadata": {"hasNext": len(rows) > size}}


def show_notification(row: Row) -> Body:
    """Return a notification in the published shape."""
    name, at = TYPES[row["kind"]], instant(row["at"])
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
