"""The administration API under /_sandbox/, for tests and demonstrations. No authentication."""

import json
from dataclasses import asdict
from typing import Any

from aiohttp import web

from .answers import Refusal, answer, refusal
from .clock import instant, seconds_of
from .controls import MOST_SECONDS, SANDBOX, Validity
from .database import Row, sql, transaction
from .document import IDENTITY_SCHEMES, read_json, well_formed_tin
from .documents import change_document_state, find_document
from .faults import KINDS
from .operations import OPERATIONS
from .taxpayers import PROFILE, qr_code
from .validators.codes import LIST_NAMES

routes = web.RouteTableDef()

#: Members of an order that are not passed on to its kind of error.
FAULT_MEMBERS = ("operation", "kind", "times", "number")
MOST_TIMES = 10**6
#: Operations for which an error can be ordered.
FAULT_OPERATIONS = {name for _, _, name, _ in OPERATIONS} | {"*"}

Members = dict[str, Any]


async def read_body(request: web.Request) -> Members:
    """Return the members of a JSON object, none for an empty body. Raises Refusal.

    Decimal numbers become float: times may have decimal places, and there are no amounts here.
    """
    body = await request.read()
    try:
        members = read_json(body) if body else {}
    except ValueError:
        members = None
    if not isinstance(members, dict):
        raise bad_request("The body must be a JSON object.")
    return {
        name: float(value) if hasattr(value, "as_tuple") else value
        for name, value in members.items()
    }


def bad_request(message: str) -> Refusal:
    """Return the refusal of an invalid request."""
    return refusal(400, "BadArgument", message)


def require_text(members: Members, name: str) -> str:
    """Return a member that must be a string. Raises Refusal."""
    if not isinstance(members.get(name), str):
        raise bad_request(f"{name} is required and must be a string.")
    return members[name]


@routes.get("/_sandbox/settings")
async def show_settings(request: web.Request) -> web.Response:
    """Return all settings."""
    return answer(asdict(request.app[SANDBOX].controls))


@routes.post("/_sandbox/settings")
async def change_settings(request: web.Request) -> web.Response:
    """Change the given settings and return all."""
    sandbox = request.app[SANDBOX]
    try:
        sandbox.change(await read_body(request))
    except ValueError as error:
        raise bad_request(str(error)) from None
    return answer(asdict(sandbox.controls))


@routes.get("/_sandbox/clock")
async def show_clock(request: web.Request) -> web.Response:
    """Return the time of the sandbox clock and its offset in seconds."""
    sandbox = request.app[SANDBOX]
    return answer({"now": instant(sandbox.now()), "offset": sandbox.clock_offset})


@routes.post("/_sandbox/clock")
async def move_clock(request: web.Request) -> web.StreamResponse:
    """Move the clock by {seconds}: forward, or back by at most its offset."""
    sandbox = request.app[SANDBOX]
    seconds = (await read_body(request)).get("seconds")
    if not isinstance(seconds, (int, float)):
        raise bad_request("seconds is required and must be a number.")
    if not -sandbox.clock_offset <= seconds <= MOST_SECONDS:
        raise bad_request(
            f"seconds must be at most {MOST_SECONDS}, "
            f"and at least {-sandbox.clock_offset} (the clock was moved forward by that much)."
        )
    sandbox.move_clock(seconds)
    return await show_clock(request)


@routes.post("/_sandbox/tokens/expire")
async def expire_tokens(request: web.Request) -> web.Response:
    """Expire all tokens."""
    return answer({"expired": sql.token_expire_all(request.app[SANDBOX].db)})


@routes.get("/_sandbox/faults")
async def list_faults(request: web.Request) -> web.Response:
    """Return the ordered errors that are not used up."""
    return answer({"faults": [show_fault(row) for row in sql.fault_list(request.app[SANDBOX].db)]})


def show_fault(row: Row) -> Members:
    """Return the members of an ordered error."""
    shown = dict(row)
    members = json.loads(shown.pop("members"))
    return {**shown, **members}


@routes.post("/_sandbox/faults")
async def order_fault(request: web.Request) -> web.Response:
    """Order an error {operation, kind, times, number, …} for the next requests. Returns its id."""
    members = await read_body(request)
    operation, kind = require_text(members, "operation"), require_text(members, "kind")
    times = members.get("times", 1)
    if operation not in FAULT_OPERATIONS:
        raise bad_request(f"operation must be one of {sorted(FAULT_OPERATIONS)}.")
    if kind not in KINDS:
        raise bad_request(f"kind must be one of {sorted(KINDS)}.")
    if type(times) is not int or not 1 <= times <= MOST_TIMES:
        raise bad_request(f"times must be an integer from 1 to {MOST_TIMES}.")
    parameters = {name: value for name, value in members.items() if name not in FAULT_MEMBERS}
    fault_id = sql.fault_insert(
        request.app[SANDBOX].db,
        operation=operation,
        kind=kind,
        remaining=times,
        number=members.get("number"),
        members=json.dumps(parameters),
    )
    return answer({"id": fault_id}, 201)


@routes.delete("/_sandbox/faults")
async def clear_faults(request: web.Request) -> web.Response:
    """Delete all ordered errors."""
    return answer({"cleared": sql.fault_clear(request.app[SANDBOX].db)})


@routes.post("/_sandbox/taxpayers")
async def put_taxpayer(request: web.Request) -> web.Response:
    """Add or replace a taxpayer {tin, name, identities: [{type, value}], profile, blocked}.

    `profile` has members of the QR code information.
    """
    members, sandbox = await read_body(request), request.app[SANDBOX]
    tin, name = require_text(members, "tin"), members.get("name", "")
    if not well_formed_tin(tin):
        raise bad_request("tin is not a TIN.")
    identities = [read_identity(each) for each in members.get("identities", [])]
    profile = read_profile(members.get("profile", {}))
    with transaction(sandbox.db):
        sandbox.register(tin, name or f"Taxpayer {tin}", identities, bool(members.get("blocked")))
        sql.profile_put(sandbox.db, tin=tin, members=json.dumps(profile))
    return answer({"tin": tin, "qrCode": qr_code(tin)}, 201)


def read_profile(profile: Any) -> dict[str, str]:
    """Return the members of a profile, all text. Raises Refusal."""
    if not isinstance(profile, dict) or not all(
        name in PROFILE and isinstance(text, str) for name, text in profile.items()
    ):
        raise bad_request(f"profile must be an object with text members of {sorted(PROFILE)}.")
    return profile


@routes.get("/_sandbox/taxpayers")
async def list_taxpayers(request: web.Request) -> web.Response:
    """Return all registered taxpayers with the contents of their QR codes."""
    rows = sql.taxpayer_list(request.app[SANDBOX].db)
    shown = [
        {"tin": row["tin"], "name": row["name"], "qrCode": qr_code(row["tin"])} for row in rows
    ]
    return answer({"taxpayers": shown})


def read_identity(identity: Any) -> tuple[str, str]:
    """Return (type, value) of an identity. Raises Refusal."""
    if not isinstance(identity, dict) or identity.get("type") not in IDENTITY_SCHEMES:
        raise bad_request(f"type must be one of {IDENTITY_SCHEMES}.")
    return identity["type"], require_text(identity, "value")


@routes.post("/_sandbox/clients")
async def put_client(request: web.Request) -> web.Response:
    """Add or replace a client.

    {client_id, client_secret, tin, intermediary, represents: [TIN], blocked}
    """
    members = await read_body(request)
    represents = members.get("represents")
    sql.client_put(
        request.app[SANDBOX].db,
        client_id=require_text(members, "client_id"),
        client_secret=require_text(members, "client_secret"),
        tin=require_text(members, "tin"),
        intermediary=bool(members.get("intermediary")),
        represents=None if represents is None else json.dumps(represents),
        blocked=bool(members.get("blocked")),
    )
    return answer({"client_id": members["client_id"]}, 201)


@routes.put("/_sandbox/codes")
async def put_code(request: web.Request) -> web.Response:
    """Set the validity of a code {list, code, from, to}, `from` included and `to` excluded.

    An absent limit is open.
    """
    members = await read_body(request)
    name, code = read_list_name(members), require_text(members, "code")
    start, end = read_validity(members)
    sql.code_put(request.app[SANDBOX].db, list=name, code=code, active_from=start, active_to=end)
    return answer({"list": name, "code": code})


@routes.put("/_sandbox/code-lists")
async def put_code_list(request: web.Request) -> web.Response:
    """Replace a code list {list, codes: [{code, from, to}]} for documents validated from now on."""
    members = await read_body(request)
    name, entries = read_list_name(members), members.get("codes")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise bad_request("codes is required and must be an array of objects.")
    codes = {require_text(entry, "code"): read_validity(entry) for entry in entries}
    request.app[SANDBOX].put_code_list(name, codes)
    return answer({"list": name, "codes": len(codes)})


def read_list_name(members: Members) -> str:
    """Return the name of a code list. Raises Refusal."""
    if require_text(members, "list") not in LIST_NAMES:
        raise bad_request(f"list must be one of {sorted(LIST_NAMES)}.")
    return members["list"]


def read_validity(members: Members) -> Validity:
    """Return the limits `from` and `to` of a code. Raises Refusal."""
    return read_instant(members, "from"), read_instant(members, "to")


def read_instant(members: Members, name: str) -> float | None:
    """Return a member in Unix seconds, None if it is absent. Raises Refusal."""
    if members.get(name) is None:
        return None
    try:
        return seconds_of(require_text(members, name))
    except (ValueError, OverflowError):
        raise bad_request(f"{name} is not a date and time.") from None


@routes.get("/_sandbox/ledger")
async def show_ledger(request: web.Request) -> web.Response:
    """Return all documents ever accepted, in that order, filtered by `number` and `taxpayer`."""
    filters = {name: request.query.get(name) or None for name in ("number", "taxpayer")}
    rows = sql.document_ledger(request.app[SANDBOX].db, **filters)
    return answer({"documents": [ledger_entry(row) for row in rows]})


def ledger_entry(row: Row) -> Members:
    """Return one document of the ledger."""
    plain = ("sequence", "uuid", "number", "type", "taxpayer", "status", "sha256")
    return {
        **{name: row[name] for name in plain},
        "submissionUid": row["submission_uid"],
        "issuedAt": instant(row["issued_at"]),
        "clientId": row["client_id"],
        "receivedAt": instant(row["received_at"]),
        "validatedAt": instant(row["validated_at"]),
        "warnings": json.loads(row["warnings"] or "[]"),
    }


@routes.get("/_sandbox/calls")
async def show_calls(request: web.Request) -> web.Response:
    """Return the counts of requests, responses and errors."""
    db = request.app[SANDBOX].db
    calls = {row["operation"]: row for row in sql.call_list(db)}
    answers: dict[str, dict[str, int]] = {}
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
async def change_document(request: web.Request) -> web.Response:
    """Cancel a document as its issuer, or reject it as its buyer, on the portal's own pages.

    {reason}. Raises the portal's Refusal.
    """
    wanted = {"cancel": "cancelled", "reject": "rejected"}[request.match_info["change"]]
    reason = (await read_body(request)).get("reason", "By the sandbox")
    row = find_document(request)
    return answer(change_document_state(request.app[SANDBOX], row, wanted, reason))


@routes.put("/_sandbox/odd-rows")
async def put_odd_row(request: web.Request) -> web.Response:
    """Replace members of the documents of a number in lists, submissions and details.

    {number, members}. Members that are null end the replacement.
    """
    body = await read_body(request)
    number, members = require_text(body, "number"), body.get("members")
    if members is not None and not isinstance(members, dict):
        raise bad_request("members must be an object or null.")
    request.app[SANDBOX].show_oddly(number, members)
    return answer({"number": number, "members": members})


@routes.post("/_sandbox/reset")
async def reset(request: web.Request) -> web.Response:
    """Return to the state of the first start."""
    request.app[SANDBOX].reset()
    return answer({"reset": True})
