"""The administration API under /_sandbox/, for tests and demonstrations. No authentication."""

from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec
from aiohttp import web

from .answers import Body, answer, refusal
from .controls import MOST_SECONDS, SANDBOX, Controls, FaultOrder, Sandbox, instant
from .database import Row
from .document import well_formed_tin
from .documents import change_document_state, find_document
from .faults import KINDS
from .operations import OPERATIONS
from .queries import read_query, seconds_of
from .registers import PROFILE, qr_code
from .settings import Client, Taxpayer
from .validators.codes import LIST_NAMES

routes = web.RouteTableDef()

#: Does what a request asks for and returns the value of the response. Raises ValueError.
Function = TypeVar("Function", bound=Callable[..., object])


class ClockMove(msgspec.Struct):
    seconds: float


class Code(msgspec.Struct, rename={"start": "from", "end": "to", "table": "list"}):
    """A code with its validity, `from` included and `to` excluded. An absent limit is open."""

    code: str
    start: str | None = None
    end: str | None = None
    table: str = ""  # the list, unless the code is in one

    @property
    def period(self) -> tuple[float, float]:
        """Return the validity in Unix seconds. Raises ValueError."""
        return seconds_of(self.start or "0001-01-01"), seconds_of(self.end or "9999-12-31")


class CodeList(msgspec.Struct, rename={"table": "list"}):
    table: str
    codes: list[Code]


class StateChange(msgspec.Struct):
    reason: str = "By the sandbox"


class OddRowOrder(msgspec.Struct):
    """Members of the documents of a number; null ends the replacement."""

    number: str
    members: Body | None = None


def serve(method: str, path: str, body: object = None) -> Callable[[Function], Function]:
    """Serve a path by a function of the sandbox, of the JSON body if that has a type, and of what
    the path names. A change of the state is stored before the response.
    """

    def register(function: Function) -> Function:
        async def handle(request: web.Request) -> web.Response:
            content = await request.read() or b"{}"
            sandbox = request.app[SANDBOX]
            try:
                given = () if body is None else (msgspec.json.decode(content, type=body),)
                shown = function(sandbox, *given, **request.match_info)
            except (ValueError, OverflowError) as error:
                raise refusal(400, "BadArgument", str(error)) from None
            if method != "GET":
                sandbox.save()
            return answer(shown)

        routes.route(method, f"/_sandbox/{path}")(handle)
        return function

    return register


def require_known(name: str, value: str, known: Collection[str]) -> None:
    """Raise ValueError if the value of a member is not a known one."""
    if value not in known:
        raise ValueError(f"{name} must be one of {sorted(known)}.")


@serve("GET", "settings")
def show_settings(sandbox: Sandbox) -> Controls:
    return sandbox.controls


@serve("POST", "settings", Body)
def change_settings(sandbox: Sandbox, values: Body) -> Controls:
    """Change the given settings and return all.

    If it concerns unfinished documents, they get a new end of validation.
    """
    changed = {**sandbox.state.changed, **values}
    controls = sandbox.controls = sandbox.make_controls(changed)
    sandbox.state.changed = changed
    if {"processing_seconds", "stuck"} & set(values):
        sandbox.db.document_plan(now=sandbox.now(), processing_seconds=controls.processing_seconds)
    return controls


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
    return show_clock(sandbox)


@serve("POST", "tokens/expire")
def expire_tokens(sandbox: Sandbox) -> Body:
    return {"expired": sandbox.db.token_expire_all()}


@serve("GET", "faults")
def list_faults(sandbox: Sandbox) -> Body:
    """Return the ordered errors that are not used up."""
    faults = sandbox.state.faults.items()
    shown = [{"id": fault_id, **msgspec.to_builtins(order)} for fault_id, order in faults]
    return {"faults": shown}


@serve("POST", "faults", FaultOrder)
def order_fault(sandbox: Sandbox, order: FaultOrder) -> Body:
    """Order an error for the next requests. Returns its id."""
    require_known("operation", order.operation, {each.name for each in OPERATIONS} | {"*"})
    require_known("kind", order.kind, KINDS)
    state = sandbox.state
    state.last_fault += 1
    state.faults[state.last_fault] = order
    return {"id": state.last_fault}


@serve("DELETE", "faults")
def clear_faults(sandbox: Sandbox) -> Body:
    faults, sandbox.state.faults = sandbox.state.faults, {}
    return {"cleared": len(faults)}


@serve("POST", "taxpayers", Taxpayer)
def put_taxpayer(sandbox: Sandbox, taxpayer: Taxpayer) -> Body:
    if not well_formed_tin(taxpayer.tin):
        raise ValueError("tin is not a TIN.")
    for name in taxpayer.profile:
        require_known("A member of profile", name, PROFILE)
    sandbox.state.taxpayers[taxpayer.tin] = taxpayer
    return {"tin": taxpayer.tin, "qrCode": qr_code(taxpayer.tin)}


@serve("GET", "taxpayers")
def list_taxpayers(sandbox: Sandbox) -> Body:
    shown = [
        {"tin": tin, "name": taxpayer.name, "qrCode": qr_code(tin)}
        for tin, taxpayer in sorted(sandbox.state.taxpayers.items())
    ]
    return {"taxpayers": shown}


@serve("POST", "clients", Client)
def put_client(sandbox: Sandbox, client: Client) -> Body:
    sandbox.state.clients[client.client_id] = client
    return {"client_id": client.client_id}


@serve("PUT", "codes", Code)
def put_code(sandbox: Sandbox, code: Code) -> Body:
    require_known("list", code.table, LIST_NAMES)
    sandbox.state.code_periods.setdefault(code.table, {})[code.code] = code.period
    return {"list": code.table, "code": code.code}


@serve("PUT", "code-lists", CodeList)
def put_code_list(sandbox: Sandbox, given: CodeList) -> Body:
    """Replace a code list for documents validated from now on.

    The limits of its codes replace those that they had.
    """
    require_known("list", given.table, LIST_NAMES)
    periods = {each.code: each.period for each in given.codes if each.start or each.end}
    sandbox.state.code_periods.setdefault(given.table, {}).update(periods)
    sandbox.state.code_lists[given.table] = {each.code for each in given.codes}
    return {"list": given.table, "codes": len(given.codes)}


@serve("PUT", "odd-rows", OddRowOrder)
def put_odd_row(sandbox: Sandbox, row: OddRowOrder) -> OddRowOrder:
    """Replace members of the documents of a number in lists, submissions and details."""
    sandbox.state.odd_rows[row.number] = row.members or {}
    return row


@serve("POST", "reset")
def reset(sandbox: Sandbox) -> Body:
    """Return to the state of the first start."""
    sandbox.db.empty()
    sandbox.load()
    return {"reset": True}


@serve("GET", "calls")
def show_calls(sandbox: Sandbox) -> Body:
    calls: dict[str, int] = {}
    answers: dict[str, dict[str, int]] = {}
    last_submit_at = None
    for operation, status, count, last_at in sandbox.db.request_counts():
        if status:
            answers.setdefault(operation, {})[status] = count
        else:
            calls[operation] = count
        if (operation, status) == ("submit", ""):
            last_submit_at = instant(last_at)
    return {
        "calls": calls,
        "answers": answers,
        "faults": sandbox.state.met_faults,
        "lastSubmitAt": last_submit_at,
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
    validated_at = row["validated_at"]
    plain = ("sequence", "uuid", "number", "type", "taxpayer", "status", "sha256")
    return {
        **{name: row[name] for name in plain},
        "submissionUid": row["submission_uid"],
        "issuedAt": instant(row["issued_at"]),
        "clientId": row["client_id"],
        "receivedAt": instant(row["received_at"]),
        "validatedAt": None if validated_at is None else instant(validated_at),
        "warnings": msgspec.Raw(row["warnings"]),
    }


@serve("POST", "documents/{uuid}/{change:cancel|reject}", StateChange)
def change_document(sandbox: Sandbox, body: StateChange, uuid: str, change: str) -> Body:
    """Cancel a document as its issuer, or reject it as its buyer, on the portal's own pages.

    Raises the portal's Refusal.
    """
    wanted = {"cancel": "cancelled", "reject": "rejected"}[change]
    return change_document_state(sandbox, find_document(sandbox, uuid), wanted, body.reason)
