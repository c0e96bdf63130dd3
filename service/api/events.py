"""The events of a company in order. Each page has the position where the next one starts."""

from aiohttp import web

from service import json_codec, schema
from service.api.filters import read_filter
from service.api.operation import Group, QueryParameter
from service.api.pagination import read_number
from service.db.statements import sql
from service.errors import ValidationError, Violation, reject, violation
from service.http import requests, responses
from service.http.access import read_own

operation = GROUP = Group("Events")

TYPES = schema.get_values("event_type")


def _read_types(text: str) -> list[str]:
    types = text.split(",")
    if not set(types) <= set(TYPES):
        raise ValueError(f"types must be a comma-separated list of {', '.join(TYPES)}.")
    return types


AFTER = QueryParameter(
    "after", {"type": "integer", "minimum": 0, "default": 0}, "Only events after this one."
)
LIMIT = QueryParameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 50}, "Events of a page."
)
ONLY_TYPES = QueryParameter(
    "types",
    {"type": "string"},
    "Only events of these types, separated by commas.",
    _read_types,
    rule="enum",
)


@operation(
    "GET /api/events",
    "List events",
    "EventList",
    query=(AFTER, LIMIT, ONLY_TYPES),
    description="In order. `meta.next_after` is the `after` of the next page.",
)
async def list_events(request: web.Request) -> web.Response:
    violations: list[Violation] = []
    query = requests.read_query(request, ("after", "limit", "types"), violations)
    after = read_number(query, AFTER, violations)
    most = read_number(query, LIMIT, violations)
    types = read_filter(query, ONLY_TYPES, violations)
    reject(violations)
    row = await read_own(request, sql.event_page, after=after, most=most, types=types)
    if not row["known"]:
        raise ValidationError(
            [violation("after", "known", "after must be 0 or the id of an event of the company.")]
        )
    meta = json_codec.dumps({"has_more": row["has_more"], "next_after": row["next_after"]})
    return responses.json_text_response(f'{{"data":{row["data"]},"meta":{meta}}}')
