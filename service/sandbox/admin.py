"""The administration API under /_sandbox/, for tests and demonstrations. No authentication."""

from collections.abc import Collection
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web

from .answers import Refusal, answer, encode, refusal
from .clock import instant
from .controls import MOST_SECONDS, SANDBOX, Validity
from .database import Row, sql, transaction
from .document import well_formed_tin
from .documents import change_document_state, find_document
from .faults import KINDS
from .operations import OPERATIONS
from .queries import read_query, to_seconds
from .settings import Taxpayer
from .taxpayers import PROFILE, qr_code
from .validators.codes import LIST_NAMES

routes = web.RouteTableDef()

Members = dict[str, Any]
Body = TypeVar("Body")


class ClockMove(msgspec.Struct):
    """By how much the clock moves."""

    seconds: float


class FaultOrder(msgspec.Struct):
    """The members that all kinds of errors have. Others are passed on to the kind."""

    operation: str
    kind: str
    times: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 1
    number: str | None = None


class Client(msgspec.Struct):
    """A client. `represents` limits the taxpayers that an intermediary acts for."""

    client_id: str
    client_secret: str
    tin: str
    intermediary: bool = False
    represents: list[str] | None = None
    blocked: bool = False


class Code(msgspec.Struct, rename={"start": "from", "end": "to"}):
    """A code with its validity, `from` included and `to` excluded. An absent limit is open."""

    code: str
    start: str | None = None
    end: str | None = None

    def read_validity(self) -> Validity:
        """Return the limits. Raises Refusal."""
        return to_seconds(self.start, "from"), to_seconds(self.end, "to")


class DatedCode(Code, kw_only=True, rename={"table": "list"}):
    """A code of a list."""

    table: str


class CodeList(msgspec.Struct, rename={"table": "list"}):
    """All codes of a list."""

    table: str
    codes: list[Code]


class OddRow(msgspec.Struct):
    """Members of the documents of a number; null ends the replacement."""

    number: str
    members: Members | None = None


async def read_body(request: web.Request, kind: type[Body]) -> Body:
    """Return the JSON body, an empty one as an object without members. Raises Refusal."""
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except ValueError as error:
        raise bad_request(str(error)) from None


def bad_request(message: str) -> Refusal:
    """Return the refusal of an invalid request."""
    return refusal(400, "BadArgument", message)


def require_known(name: str, value: str, known: Collection[str]) -> None:
    """Raise Refusal if the value of a member is not a known one."""
    if value not in known:
        raise bad_request(f"{name} must be one of {sorted(known)}.")


@routes.get("/_sandbox/settings")
async def show_settings(request: web.Request) -> web.Response:
    """Return all settings."""
    return answer(request.app[SANDBOX].controls)


@routes.post("/_sandbox/settings")
async def change_settings(request: web.Request) -> web.StreamResponse:
    """Change the given settings and return all."""
    try:
        request.app[SANDBOX].change(await read_body(request, Members))
    except ValueError as error:
        raise bad_request(str(error)) from None
    return await show_settings(request)


@routes.get("/_sandbox/clock")
async def show_clock(request: web.Request) -> web.Response:
    """Return the time of the sandbox clock and its offset in seconds."""
    sandbox = request.app[SANDBOX]
    return answer({"now": instant(sandbox.now()), "offset": sandbox.state.clock_offset})


@routes.post("/_sandbox/clock")
async def move_clock(request: web.Request) -> web.StreamResponse:
    """Move the clock by {seconds}: forward, or back by at most its offset."""
    sandbox, seconds = request.app[SANDBOX], (await read_body(request, ClockMove)).seconds
    offset = sandbox.state.clock_offset
    if not -offset <= seconds <= MOST_SECONDS:
        raise bad_request(
            f"seconds must be at most {MOST_SECONDS}, "
            f"and at least {-offset} (the clock was moved forward by that much)."
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
    return {**shown, **msgspec.json.decode(shown.pop("members"))}


@routes.post("/_sandbox/faults")
async def order_fault(request: web.Request) -> web.Response:
    """Order an error {operation, kind, times, number, …} for the next requests. Returns its id."""
    order, members = await read_body(request, FaultOrder), await read_body(request, Members)
    require_known("operation", order.operation, {name for _, _, name, _ in OPERATIONS} | {"*"})
    require_known("kind", order.kind, KINDS)
    for name in order.__struct_fields__:
        members.pop(name, None)
    fault_id = sql.fault_insert(
        request.app[SANDBOX].db,
        operation=order.operation,
        kind=order.kind,
        remaining=order.times,
        number=order.number,
        members=encode(members).decode(),
    )
    return answer({"id": fault_id}, 201)


@routes.delete("/_sandbox/faults")
async def clear_faults(request: web.Request) -> web.Response:
    """Delete all ordered errors."""
    return answer({"cleared": sql.fault_clear(request.app[SANDBOX].db)})


@routes.post("/_sandbox/taxpayers")
async def put_taxpayer(request: web.Request) -> web.Response:
    """Add or replace a taxpayer."""
    sandbox, taxpayer = request.app[SANDBOX], await read_body(request, Taxpayer)
    if not well_formed_tin(taxpayer.tin):
        raise bad_request("tin is not a TIN.")
    for name in taxpayer.profile:
        require_known("A member of profile", name, PROFILE)
    with transaction(sandbox.db):
        sandbox.register(taxpayer)
    return answer({"tin": taxpayer.tin, "qrCode": qr_code(taxpayer.tin)}, 201)


@routes.get("/_sandbox/taxpayers")
async def list_taxpayers(request: web.Request) -> web.Response:
    """Return all registered taxpayers with the contents of their QR codes."""
    rows = sql.taxpayer_list(request.app[SANDBOX].db)
    shown = [
        {"tin": row["tin"], "name": row["name"], "qrCode": qr_code(row["tin"])} for row in rows
    ]
    return answer({"taxpayers": shown})


@routes.post("/_sandbox/clients")
async def put_client(request: web.Request) -> web.Response:
    """Add or replace a client."""
    members = msgspec.structs.asdict(await read_body(request, Client))
    represents = members["represents"]
    members["represents"] = None if represents is None else encode(represents).decode()
    sql.client_put(request.app[SANDBOX].db, **members)
    return answer({"client_id": members["client_id"]}, 201)


@routes.put("/_sandbox/codes")
async def put_code(request: web.Request) -> web.Response:
    """Set the validity of a code."""
    code = await read_body(request, DatedCode)
    require_known("list", code.table, LIST_NAMES)
    start, end = code.read_validity()
    db = request.app[SANDBOX].db
    sql.code_put(db, list=code.table, code=code.code, active_from=start, active_to=end)
    return answer({"list": code.table, "code": code.code})


@routes.put("/_sandbox/code-lists")
async def put_code_list(request: web.Request) -> web.Response:
    """Replace a code list for documents validated from now on."""
    body = await read_body(request, CodeList)
    require_known("list", body.table, LIST_NAMES)
    codes = {each.code: each.read_validity() for each in body.codes}
    request.app[SANDBOX].put_code_list(body.table, codes)
    return answer({"list": body.table, "codes": len(codes)})


@routes.get("/_sandbox/ledger")
async def show_ledger(request: web.Request) -> web.Response:
    """Return all documents ever accepted, in that order, filtered by `number` and `taxpayer`."""
    query = read_query(request)
    rows = sql.document_ledger(
        request.app[SANDBOX].db, number=query.get("number"), taxpayer=query.get("taxpayer")
    )
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
        "warnings": msgspec.Raw(row["warnings"] or "[]"),
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
    reason = (await read_body(request, Members)).get("reason", "By the sandbox")
    row = find_document(request)
    return answer(change_document_state(request.app[SANDBOX], row, wanted, reason))


@routes.put("/_sandbox/odd-rows")
async def put_odd_row(request: web.Request) -> web.Response:
    """Replace members of the documents of a number in lists, submissions and details."""
    body = await read_body(request, OddRow)
    request.app[SANDBOX].show_oddly(body.number, body.members)
    return answer(body)


@routes.post("/_sandbox/reset")
async def reset(request: web.Request) -> web.Response:
    """Return to the state of the first start."""
    request.app[SANDBOX].reset()
    return answer({"reset": True})
