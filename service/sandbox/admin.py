"""The administration surface, for tests and demonstrations: JSON, no authentication, under /_sandbox/."""

import json

from aiohttp import web

from .answers import Refusal, answer
from .clock import instant, seconds_of
from .controls import MOST_SECONDS, SANDBOX
from .database import sql, transaction
from .document import IDENTITY_SCHEMES, read_json, well_formed_tin
from .documents import change_document_state, existing
from .faults import KINDS
from .validators.codes import CALLED

routes = web.RouteTableDef()

#: members of a fault that are not passed on to its kind
FAULT_MEMBERS = ("operation", "kind", "times", "number")
MOST_TIMES = 10**6
#: operations a fault can be ordered for
FAULT_OPERATIONS = {
    "login",
    "submit",
    "submission",
    "details",
    "raw",
    "search",
    "recent",
    "state",
    "tin",
    "tin_search",
    "types",
    "*",
}


async def read_body(request):
    """The members of a JSON object; an empty body has none. Raises Refusal."""
    body = await request.read()
    try:
        members = read_json(body) if body else {}
    except ValueError:
        members = None
    if not isinstance(members, dict):
        raise wrong("The body is not a JSON object.")
    return {name: plain(value) for name, value in members.items()}


def plain(value):
    """Times may have decimals; nothing here is an amount."""
    return float(value) if hasattr(value, "as_tuple") else value


def wrong(message):
    return Refusal(400, "BadArgument", message)


def required(members, name, kind=str):
    if not isinstance(members.get(name), kind):
        raise wrong(f"{name} is required.")
    return members[name]


@routes.get("/_sandbox/settings")
async def show_settings(request):
    return answer(request.app[SANDBOX].shown())


@routes.post("/_sandbox/settings")
async def change_settings(request):
    sandbox = request.app[SANDBOX]
    try:
        sandbox.change(await read_body(request))
    except ValueError as error:
        raise wrong(str(error)) from None
    return answer(sandbox.shown())


@routes.get("/_sandbox/clock")
async def show_clock(request):
    sandbox = request.app[SANDBOX]
    return answer({"now": instant(sandbox.now()), "offset": sandbox.clock_offset})


@routes.post("/_sandbox/clock")
async def move_clock(request: web.Request) -> web.Response:
    """Move the clock by {seconds} from where it is: forward, or back by at most what it was moved forward."""
    sandbox = request.app[SANDBOX]
    seconds = required(await read_body(request), "seconds", (int, float))
    if not -sandbox.clock_offset <= seconds <= MOST_SECONDS:
        raise wrong(
            f"The clock moves forward, by at most {MOST_SECONDS} seconds, and back by what it was moved."
        )
    sandbox.move_clock(seconds)
    return await show_clock(request)


@routes.post("/_sandbox/tokens/expire")
async def expire_tokens(request):
    return answer({"expired": sql.token_expire_all(request.app[SANDBOX].db)})


@routes.get("/_sandbox/faults")
async def list_faults(request):
    return answer({"faults": [shown_fault(row) for row in sql.fault_list(request.app[SANDBOX].db)]})


def shown_fault(row):
    return {
        "id": row["id"],
        "operation": row["operation"],
        "kind": row["kind"],
        "times": row["remaining"],
        "number": row["number"],
        **json.loads(row["members"]),
    }


@routes.post("/_sandbox/faults")
async def order_fault(request):
    """{operation, kind, times, number, …}: for the next calls of the operation; answers its id."""
    members = await read_body(request)
    operation, kind = required(members, "operation"), required(members, "kind")
    times = members.get("times", 1)
    if (
        operation not in FAULT_OPERATIONS
        or kind not in KINDS
        or type(times) is not int
        or not 1 <= times <= MOST_TIMES
    ):
        known = f"operation of {sorted(FAULT_OPERATIONS)}, kind of {sorted(KINDS)}"
        raise wrong(f"A fault has an {known}, and 1 to {MOST_TIMES} times.")
    id = sql.fault_insert(
        request.app[SANDBOX].db,
        operation=operation,
        kind=kind,
        remaining=times,
        number=members.get("number"),
        members=json.dumps(
            {name: value for name, value in members.items() if name not in FAULT_MEMBERS}
        ),
    )
    return answer({"id": id}, 201)


@routes.delete("/_sandbox/faults")
async def clear_faults(request):
    return answer({"cleared": sql.fault_clear(request.app[SANDBOX].db)})


@routes.post("/_sandbox/taxpayers")
async def put_taxpayer(request):
    """{tin, name, identities: [{type, value}], blocked}: adds or replaces."""
    members, sandbox = await read_body(request), request.app[SANDBOX]
    tin, name = required(members, "tin"), members.get("name", "")
    if not well_formed_tin(tin):
        raise wrong("tin is not a TIN.")
    identities = [read_identity(each) for each in members.get("identities", [])]
    with transaction(sandbox.db):
        sandbox.register(tin, name or f"Taxpayer {tin}", identities, bool(members.get("blocked")))
    return answer({"tin": tin}, 201)


def read_identity(each):
    if not isinstance(each, dict) or each.get("type") not in IDENTITY_SCHEMES:
        raise wrong(f"type is one of {IDENTITY_SCHEMES}.")
    return each["type"], required(each, "value")


@routes.post("/_sandbox/clients")
async def put_client(request):
    """{client_id, client_secret, tin, intermediary, represents: [TIN], blocked}: adds or replaces."""
    members = await read_body(request)
    represents = members.get("represents")
    sql.client_put(
        request.app[SANDBOX].db,
        client_id=required(members, "client_id"),
        client_secret=required(members, "client_secret"),
        tin=required(members, "tin"),
        intermediary=bool(members.get("intermediary")),
        represents=None if represents is None else json.dumps(represents),
        blocked=bool(members.get("blocked")),
    )
    return answer({"client_id": members["client_id"]}, 201)


@routes.put("/_sandbox/codes")
async def put_code(request):
    """{list, code, from, to}: when a code holds, from included, to excluded; an end that is left out is open."""
    members = await read_body(request)
    if required(members, "list") not in CALLED:
        raise wrong(f"list is one of {sorted(CALLED)}.")
    ends = {f"active_{end}": read_end(members, end) for end in ("from", "to")}
    code = required(members, "code")
    sql.code_put(request.app[SANDBOX].db, list=members["list"], code=code, **ends)
    return answer({"list": members["list"], "code": code})


def read_end(members, name):
    if members.get(name) is None:
        return None
    try:
        return seconds_of(required(members, name))
    except (ValueError, OverflowError):
        raise wrong(f"{name} is not a date and time.") from None


@routes.get("/_sandbox/ledger")
async def show_ledger(request):
    """Every document that was ever accepted, in that order; `number` and `taxpayer` narrow it."""
    query = request.query
    narrowed = {name: query.get(name) or None for name in ("number", "taxpayer")}
    rows = sql.document_ledger(request.app[SANDBOX].db, **narrowed)
    return answer({"documents": [ledger_entry(row) for row in rows]})


def ledger_entry(row):
    return {
        "sequence": row["sequence"],
        "uuid": row["uuid"],
        "submissionUid": row["submission_uid"],
        "number": row["number"],
        "type": row["type"],
        "issuedAt": instant(row["issued_at"]),
        "taxpayer": row["taxpayer"],
        "status": row["status"],
        "sha256": row["sha256"],
        "receivedAt": instant(row["received_at"]),
        "validatedAt": instant(row["validated_at"]),
        "warnings": json.loads(row["warnings"] or "[]"),
    }


@routes.get("/_sandbox/calls")
async def show_calls(request):
    db = request.app[SANDBOX].db
    calls = {row["operation"]: row for row in sql.call_list(db)}
    answers = {}
    for row in sql.answer_list(db):
        answers.setdefault(row["operation"], {})[row["status"]] = row["count"]
    return answer(
        {
            "calls": {operation: row["count"] for operation, row in calls.items()},
            "answers": answers,
            "faults": {row["label"]: row["count"] for row in sql.fault_counts(db)},
            "lastSubmitAt": instant(calls["submit"]["last_at"]) if "submit" in calls else None,
        }
    )


@routes.post("/_sandbox/documents/{uuid}/{change:cancel|reject}")
async def change_document(request):
    """{reason}: what the issuer, or the buyer, does on the portal's own pages. Raises the portal's Refusal."""
    wanted = {"cancel": "cancelled", "reject": "rejected"}[request.match_info["change"]]
    reason = (await read_body(request)).get("reason", "By the sandbox")
    return answer(change_document_state(request.app[SANDBOX], existing(request), wanted, reason))


@routes.put("/_sandbox/odd-rows")
async def put_odd_row(request):
    """{number, members}: lists, submissions and details show the documents of the number with these members; null ends it."""
    body = await read_body(request)
    number, members = required(body, "number"), body.get("members")
    if members is not None and not isinstance(members, dict):
        raise wrong("members is an object or null.")
    request.app[SANDBOX].show_oddly(number, members)
    return answer({"number": number, "members": members})


@routes.post("/_sandbox/reset")
async def reset(request):
    """Everything as at the first start."""
    request.app[SANDBOX].reset()
    return answer({"reset": True})
