"""The events of a company in order. Each page has the position where the next one starts."""

from collections.abc import Mapping

from aiohttp import web

from service import json_codec, schema
from service.db.statements import sql
from service.errors import ValidationError, Violation, violation
from service.http import app_keys, requests, responses
from service.http.requests import MAX_ID, read_integer

routes = web.RouteTableDef()

MOST = 100
DEFAULT = 50
TYPES = tuple(schema.ALL["common"]["$defs"]["event_type"]["enum"])


@routes.get("/api/events")
async def list_events(request: web.Request) -> web.Response:
    """Return the events after a position, in an order in which a reader misses none.

    Raises ValidationError for an unknown position.
    """
    query = requests.read_query(request, ("after", "limit", "types"))
    after, most, types = _parse_query(query)
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        row = await sql.event_page(conn, company_id=company, after=after, most=most, types=types)
    if not row["known"]:
        raise ValidationError(
            [violation("after", "known", "after must be 0 or the id of an event of the company.")]
        )
    meta = json_codec.dumps({"has_more": row["has_more"], "next_after": row["next_after"]})
    return responses.json_text_response(f'{{"data":{row["data"]},"meta":{meta}}}')


def _parse_query(query: Mapping[str, str]) -> tuple[int, int, list[str] | None]:
    """Return (after, limit, types or None). Raises ValidationError with all violations."""
    violations: list[Violation] = []
    after = read_integer(query, "after", (0, MAX_ID), 0, violations)
    most = read_integer(query, "limit", (1, MOST), DEFAULT, violations)
    types = query["types"].split(",") if query.get("types") else None
    if not set(types or ()) <= set(TYPES):
        message = f"types must be a comma-separated list of {', '.join(TYPES)}."
        violations.append(violation("types", "enum", message))
    if violations:
        raise ValidationError(violations)
    return after, most, types
