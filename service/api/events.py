"""The company's events, to be read along: each page says where the next one begins."""

from aiohttp import web

from service import json_codec, schema
from service.db.statements import sql
from service.errors import ValidationError, violation
from service.http import app_keys, requests, responses
from service.http.requests import MAX_ID, read_integer

routes = web.RouteTableDef()

MOST = 100
DEFAULT = 50
TYPES = tuple(schema.ALL["common"]["$defs"]["event_type"]["enum"])


@routes.get("/api/events")
async def list_events(request):
    """The events after one, in the order in which a reader misses none. Raises Invalid for an unknown one."""
    after, most, types = _asked(requests.read_query(request, ("after", "limit", "types")))
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        row = await sql.event_page(conn, company_id=company, after=after, most=most, types=types)
    if not row["known"]:
        raise ValidationError(
            [violation("after", "known", "after must be the id of an event of yours, or 0.")]
        )
    meta = json_codec.dumps({"has_more": row["has_more"], "next_after": row["next_after"]})
    return responses.json_text_response(f'{{"data":{row["data"]},"meta":{meta}}}')


def _asked(query):
    """(after, limit, types or None) of a query. Raises Invalid naming every parameter that is wrong."""
    faults = []
    after = read_integer(query, "after", 0, MAX_ID, 0, faults)
    most = read_integer(query, "limit", 1, MOST, DEFAULT, faults)
    types = query["types"].split(",") if query.get("types") else None
    if not set(types or ()) <= set(TYPES):
        faults.append(
            violation(
                "types",
                "enum",
                f"types must be some of {', '.join(TYPES)}, with commas between them.",
            )
        )
    if faults:
        raise ValidationError(faults)
    return after, most, types
