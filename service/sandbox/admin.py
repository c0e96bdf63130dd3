"""The administration API under /_sandbox/, for tests and demonstrations. No authentication."""

from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec
from aiohttp import web

from .answers import Body, answer, encode, refusal
from .clock import instant, seconds_of
from .controls import MOST_SECONDS, SANDBOX, Controls, Sandbox
from .database import Row
from .document import well_formed_tin
from .documents import change_document_state, find_document
from .faults import KINDS, FaultOrder
from .operations import OPERATIONS
from .queries import read_query
from .settings import Client, Taxpayer
from .taxpayers import PROFILE, qr_code
from .validators.codes import LIST_NAMES

routes = web.RouteTableDef()

#: Does what a request asks for and returns the value of the response. Raises ValueError.
Function = TypeVar("Function", bound=Callable[..., object])


class ClockMove(msgspec.Struct):
    """By how much the clock moves."""

    seconds: float


class Code(msgspec.Struct, rename={"start": "from", "end": "to", "table": "list"}):
    """A code with its validity, `from` included and `to` excluded. An absent limit is open."""

    code: str
    start: str | None = None
    end: str | None = None
    table: str = ""  # the list, unless the code is in one

    def store(self, sandbox: Sandbox, table: str) -> None:
        """Store the validity. Raises ValueError."""
        start, end = (text and seconds_of(text) for text in (self.start, self.end))
        sandbox.db.code_put(list=table, code=self.code, active_from=start, active_to=end)


class CodeList(msgspec.Struct, rename={"table": "list"}):
    """All codes of a list."""

    table: str
    codes: list[Code]


class StateChange(msgspec.Struct):
    """Why a document is cancelled or rejected."""

    reason: str = "By the sandbox"


class OddRowOrder(msgspec.Struct):
    """Members of the documents of a number; null ends the replacement."""

    number: str
    members: Body | None = None


def serve(method: str, path: str, body: object = None) -> Callable[[Function], Function]:
    """Serve a path by a function of the sandbox, of the JSON body if that has a type, and of what
    the path names.
    """

    def register(function: Function) -> Function:
        async def handle(request: web.Request) -> web.Response:
            content = await request.read() or b"{}"
            try:
                given = () if body is None else (msgspec.json.decode(content, type=body),)
                return answer(function(request.app[SANDBOX], *given, **request.match_info))
            except (ValueError, OverflowError) as error:
                raise refusal(400, "BadArgument", str(error)) from None

        routes.route(method, f"/_sandbox/{path}")(handle)
        return function

    return register


def require_known(name: str, value: str, known: Collection[str]) -> None:
    """Raise ValueError if the value of a member is not a known one."""
    if value not in known:
        raise ValueError(f"{name} must be one of {sorted(known)}.")


@serve("GET", "settings")
def show_settings(sandbox: Sandbox) -> Controls:
    """Return all settings."""
    return sandbox.controls


@serve("POST", "settings", Body)
def change_settings(sandbox: Sandbox, values: Body) -> Controls:
    """Change the given settings and return all."""
    sandbox.change(values)
    return sandbox.controls


@serve("GET", "clock")
def show_clock(sandbox: Sandbox) -> Body:
    """Return the time of the sandbox clock and its offset in seconds."""
    return {"now": instant(sandbox.now()), "offset": sandbox.state.clock_offset}


@serve("POST", "clock", ClockMove)
def move_clock(sandbox: Sandbox, move: ClockMove) -> Body:
    """Move the clock: forward, or back by at most its offset."""
    offset = sandbox.state.clock_offset
    if not -offset <= move.seconds <= MOST_SECONDS:
        raise ValueError(
            f"seconds must be at most {MOST_SECONDS}, "
            f"and at least {-offset} (the clock was moved forward by that much)."
        )
    sandbox.state.clock_offset += move.seconds
    sandbox.save()
    return show_clock(sandbox)


@serve("POST", "tokens/expire")
def expire_tokens(sandbox: Sandbox) -> Body:
    """Expire all tokens."""
    return {"expired": sandbox.db.token_expire_all()}


@serve("GET", "faults")
def list_faults(sandbox: Sandbox) -> Body:
    """Return the ordered errors that are not used up."""
    rows = [dict(row) for row in sandbox.db.fault_list()]
    return {"faults": [{**msgspec.json.decode(row.pop("members")), **row} for row in rows]}


@serve("POST", "faults", FaultOrder)
def order_fault(sandbox: Sandbox, order: FaultOrder) -> Body:
    """Order an error for the next requests. Returns its id."""
    require_known("operation", order.operation, {each.name for each in OPERATIONS} | {"*"})
    require_known("kind", order.kind, KINDS)
    columns = {**msgspec.structs.asdict(order), "members": encode(order).decode()}
    return {"id": sandbox.db.fault_insert(**columns)}


@serve("DELETE", "faults")
def clear_faults(sandbox: Sandbox) -> Body:
    """Delete all ordered errors."""
    return {"cleared": sandbox.db.fault_clear()}


@serve("POST", "taxpayers", Taxpayer)
def put_taxpayer(sandbox: Sandbox, taxpayer: Taxpayer) -> Body:
    """Add or replace a taxpayer."""
    if not well_formed_tin(taxpayer.tin):
        raise ValueError("tin is not a TIN.")
    for name in taxpayer.profile:
        require_known("A member of profile", name, PROFILE)
    with sandbox.db.transaction():
        sandbox.register(taxpayer)
    return {"tin": taxpayer.tin, "qrCode": qr_code(taxpayer.tin)}


@serve("GET", "taxpayers")
def list_taxpayers(sandbox: Sandbox) -> Body:
    """Return all registered taxpayers with the contents of their QR codes."""
    shown = [
        {"tin": row["tin"], "name": row["name"], "qrCode": qr_code(row["tin"])}
        for row in sandbox.db.taxpayer_list()
    ]
    return {"taxpayers": shown}


@serve("POST", "clients", Client)
def put_client(sandbox: Sandbox, client: Client) -> Body:
    """Add or replace a client."""
    sandbox.put_client(client)
    return {"client_id": client.client_id}


@serve("PUT", "codes", Code)
def put_code(sandbox: Sandbox, code: Code) -> Body:
    """Set the validity of a code."""
    require_known("list", code.table, LIST_NAMES)
    code.store(sandbox, code.table)
    return {"list": code.table, "code": code.code}


@serve("PUT", "code-lists", CodeList)
def put_code_list(sandbox: Sandbox, given: CodeList) -> Body:
    """Replace a code list for documents validated from now on.

    The limits of its codes replace those that they had.
    """
    require_known("list", given.table, LIST_NAMES)
    with sandbox.db.transaction():
        for code in given.codes:
            if code.start or code.end:
                code.store(sandbox, given.table)
        sandbox.state.code_lists[given.table] = {code.code for code in given.codes}
        sandbox.save()
    return {"list": given.table, "codes": len(given.codes)}


@serve("PUT", "odd-rows", OddRowOrder)
def put_odd_row(sandbox: Sandbox, row: OddRowOrder) -> OddRowOrder:
    """Replace members of the documents of a number in lists, submissions and details."""
    sandbox.state.odd_rows[row.number] = row.members or {}
    sandbox.save()
    return row


@serve("POST", "reset")
def reset(sandbox: Sandbox) -> Body:
    """Return to the state of the first start."""
    sandbox.reset()
    return {"reset": True}


@serve("GET", "calls")
def show_calls(sandbox: Sandbox) -> Body:
    """Return the counts of requests, responses and errors."""
    calls = {row["operation"]: row for row in sandbox.db.call_list()}
    answers: dict[str, dict[str, int]] = {}
    for row in sandbox.db.answer_list():
        answers.setdefault(row["operation"], {})[row["status"]] = row["count"]
    return {
        "calls": {operation: row["count"] for operation, row in calls.items()},
        "answers": answers,
        "faults": dict(sandbox.db.fault_counts()),
        "lastSubmitAt": instant(calls["submit"]["last_at"]) if "submit" in calls else None,
    }


@routes.get("/_sandbox/ledger")
async def show_ledger(request: web.Request) -> web.Response:
    """Return all documents ever accepted, in that order, filtered by `number` and `taxpayer`."""
    query = read_query(request)
    rows = request.app[SANDBOX].db.document_ledger(
        number=query.get("number"), taxpayer=query.get("taxpayer")
    )
    return answer({"documents": [show_document(row) for row in rows]})


def show_document(row: Row) -> Body:
    """Return one document of the ledger."""
    validated_at = row["validated_at"]
    plain = ("sequence", "uuid", "number", "type", "taxpayer", "status", "sha256")
    return {
        **{name: row[name] for name in plain},
        "submissionUid": row["submission_uid"],
        "issuedAt": instant(row["issued_at"]),
        "clientId": row["client_id"],
        "receivedAt": instant(row["received_at"]),
        "validatedAt": None if validated_at is None else instant(validated_at),
        "warnings": msgspec.Raw(row["warnings"] or "[]"),
    }


@serve("POST", "documents/{uuid}/{change:cancel|reject}", StateChange)
def change_document(sandbox: Sandbox, body: StateChange, uuid: str, change: str) -> Body:
    """Cancel a document as its issuer, or reject it as its buyer, on the portal's own pages.

    Raises the portal's Refusal.
    """
    wanted = {"cancel": "cancelled", "reject": "rejected"}[change]
    return change_document_state(sandbox, find_document(sandbox, uuid), wanted, body.reason)
