"""The events of a company in order. Each page has the position where the next one starts."""

from aiohttp import web

from service import json_codec, schema
from service.api.filters import integer, read_filters, several_of
from service.api.operation import Group
from service.db.statements import sql
from service.errors import ValidationError, Violation, reject, violation
from service.http import requests, responses
from service.http.access import read_own, zone_of

operation = GROUP = Group("Events")

FILTERS = (
    integer("after", "Only events after this one.", minimum=0, default=0),
    integer("limit", "Events of a page.", minimum=1, maximum=100, default=50),
    several_of("types", schema.get_values("event_type"), "EventType"),
)


@operation(
    "GET /api/events",
    "List events",
    "EventList",
    query=FILTERS,
    description="In order. `meta.next_after` is the `after` of the next page.",
)
async def list_events(request: web.Request) -> web.Response:
    violations: list[Violation] = []
    query = requests.read_query(request, [each.name for each in FILTERS], violations)
    values = read_filters(query, FILTERS, zone_of(request), violations)
    reject(violations)
    row = await read_own(request, sql.event_page, **values)
    if not row["known"]:
        raise ValidationError(
            [violation("after", "known", "after must be 0 or the id of an event of the company.")]
        )
    meta = json_codec.dumps({"has_more": row["has_more"], "next_after": row["next_after"]})
    return responses.json_text_response(f'{{"data":{row["data"]},"meta":{meta}}}')
