"""Settings that can change at run time, and the state of a sandbox: file, clock, settings."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from .answers import Body, encode
from .database import Database
from .queries import Query, read_query
from .settings import Client, Settings, Taxpayer, seed_taxpayers

#: About 31 years: longer than any window, and still a date that the calendar can represent.
MOST_SECONDS = 10**9

#: List -> code -> its validity in Unix seconds.
CodePeriods = dict[str, dict[str, tuple[float, float]]]

Seconds = Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)]


def instant(seconds: float) -> str:
    """Return an instant as `2026-09-14T03:26:02Z`, rounded down to seconds."""
    return datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Controls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the administration API. Times are in seconds."""

    processing_seconds: Seconds = 2  # from the 202 response to the end of validation
    stuck: bool = False  # no document leaves Submitted
    search_lag_seconds: Seconds = 0  # from receipt until lists show a document
    not_found_seconds: Seconds = 0  # from the 202 response until a submission is found
    payload_window_seconds: Seconds = 600
    duplicate_window_seconds: Seconds = 7200
    cancel_window_seconds: Seconds = 259200
    age_window_seconds: Seconds = 259200  # maximum age of an issue date-time
    rate_scale: Seconds = 1
    payload_detection: bool = True  # 422 for a repeated body
    duplicate_detection: bool = True  # step 3 of the validation
    token_seconds: Seconds = 3600
    mismatch_status: Literal[400, 403] = 400  # status of an issuer mismatch
    error_dialect: Literal["transport", "standard"] = "transport"
    strict_register: bool = False  # an unregistered TIN makes a document Invalid
    strict_totals: bool = False  # wrong totals are refused instead of reported as warnings
    consolidated_state_17: bool = True  # a consolidated document may have state 17 in Malaysia


class FaultOrder(msgspec.Struct, forbid_unknown_fields=True):
    """An error that the next requests of an operation, or of any (`*`), meet."""

    operation: str
    kind: str
    times: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 1  # requests that still meet it
    number: str | None = None  # only requests with the document of this number
    processed: bool | None = None  # whether the request is processed; None: as the kind says
    label: str | None = None  # name under which it is counted; None: its kind
    seconds: float = 1
    status: int | None = None
    retry_after: int | None = None
    code: str | None = None
    message: str = "A rule is broken."
    uuid: str | None = None


class State(msgspec.Struct):
    """The stored state of a sandbox, in one value. Documents, tokens and counts have tables."""

    clock_offset: float = 0
    changed: dict[str, object] = {}  # members of Controls that differ from the start settings
    odd_rows: dict[str, Body] = {}  # number of documents -> members that replace theirs
    code_lists: dict[str, set[str]] = {}
    #: State 00 was valid until June 2025. Portal: 12.2
    code_periods: CodePeriods = msgspec.field(
        default_factory=lambda: {"states": {"00": (0.0, 1748736000.0)}}
    )
    taxpayers: dict[str, Taxpayer] = msgspec.field(default_factory=seed_taxpayers)
    clients: dict[str, Client] = {}
    faults: dict[int, FaultOrder] = {}  # in the order of their ids
    last_fault: int = 0
    met_faults: dict[str, int] = {}  # number of requests by label

    def identities(self, tin: str) -> set[tuple[str, str]]:
        """Return the registered (type, value) of a taxpayer, none for an unknown one."""
        taxpayer = self.taxpayers.get(tin)
        return {(each.type, each.value) for each in taxpayer.identities} if taxpayer else set()


class Sandbox:
    """State of one sandbox: the file, the clock and the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.db = Database(settings.state)
        self.load()

    def load(self) -> None:
        """Read the stored state, which overrides the start settings."""
        settings, tin = self.settings, self.settings.tin
        self.state = state = msgspec.json.decode(self.db.state_get() or "{}", type=State)
        state.taxpayers.setdefault(tin, Taxpayer(tin, "Sandbox Intermediary Sdn. Bhd."))
        client = Client(settings.client_id, settings.client_secret, tin, intermediary=True)
        state.clients[client.client_id] = client
        self.save()
        self.controls = self.make_controls(state.changed)

    def save(self) -> None:
        self.db.state_put(value=encode(self.state).decode())

    def make_controls(self, changed: Mapping[str, object]) -> Controls:
        """Return the start settings with changes. Raises ValueError."""
        started = {
            name: getattr(self.settings, name)
            for name in ("processing_seconds", "token_seconds", "rate_scale")
        }
        return msgspec.convert({**started, **changed}, Controls)

    def now(self) -> float:
        """Return the time of the sandbox clock in Unix seconds."""
        return time.time() + self.state.clock_offset

    def row_shown(self, number: str, members: Body) -> Body:
        """Return the members of a row with their replacements."""
        return {**members, **self.state.odd_rows.get(number, {})}


@dataclass
class Call:
    """A request for an operation of the portal, and the row of its token."""

    request: web.Request
    sandbox: Sandbox
    body: bytes
    caller: Any = None  # of a login

    @cached_property
    def query(self) -> Query:
        return read_query(self.request)

    @property
    def path(self) -> Mapping[str, str]:
        return self.request.match_info


SANDBOX = web.AppKey("sandbox", Sandbox)
DATE_SHIFT = web.RequestKey("date_shift", float)  # seconds added to the `Date` of the response
