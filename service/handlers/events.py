"""The company's events, to be read along: each page says where the next one begins."""

from aiohttp import web

from service import intake, schema, wire
from service.errors import Invalid, fault
from service.intake import MAX_ID, whole
from service.statements import sql

routes = web.RouteTableDef()

MOST = 100
DEFAULT = 50
TYPES = tuple(schema.ALL["common"]["$defs"]["event_type"]["enum"])


@routes.get("/api/events")
async def list_events(request):
    """The events after one, in the order in which a reader misses none. Raises Invalid for an unknown one."""
    after, most, types = _asked(intake.query(request, ("after", "limit", "types")))
    company = request[wire.COMPANY]
    async with request.app[wire.DATABASE].reading(company) as conn:
        row = await sql.event_page(conn, company_id=company, after=after, most=most, types=types)
    if not row["known"]:
        raise Invalid([fault("after", "known", "after must be the id of an event of yours, or 0.")])
    meta = wire.dumps({"has_more": row["has_more"], "next_after": row["next_after"]})
    return wire.passed(f'{{"data":{row["data"]},"meta":{meta}}}')


def _asked(query):
    """(after, limit, types or None) of a query. Raises Invalid naming every parameter that is wrong."""
    faults = []
    after = whole(query, "after", 0, MAX_ID, 0, faults)
    most = whole(query, "limit", 1, MOST, DEFAULT, faults)
    types = query["types"].split(",") if query.get("types") else None
    if not set(types or ()) <= set(TYPES):
        faults.append(
            fault(
                "types",
                "enum",
                f"types must be some of {', '.join(TYPES)}, with commas between them.",
            )
        )
    if faults:
        raise Invalid(faults)
    return after, most, types
