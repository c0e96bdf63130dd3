"""Settings that can change at run time, and the state of a sandbox: file, clock, settings."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from .answers import Body, encode
from .database import Database
from .queries import Query, read_query
from .settings import SEEDED_TAXPAYERS, Client, Settings, Taxpayer

#: About 31 years: longer than any window, and still a date that the calendar can represent.
MOST_SECONDS = 10**9

#: State 00 was valid until June 2025. Portal: 12.2
RETIRED_STATE = {"list": "states", "code": "00", "active_from": None, "active_to": 1748736000}

Seconds = Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)]


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


class State(msgspec.Struct):
    """The stored state of a sandbox, in one value."""

    clock_offset: float = 0
    changed: dict[str, object] = {}  # members of Controls that differ from the start settings
    odd_rows: dict[str, Body] = {}  # number of documents -> members that replace theirs
    code_lists: dict[str, set[str]] = {}


class Sandbox:
    """State of one sandbox. Every method commits, unless the caller has opened a transaction."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.db = Database(settings.state)
        self.load()

    def load(self) -> None:
        """Read the stored state, which overrides the start settings. Fill an empty file first."""
        stored = self.db.state_get()
        self.state = msgspec.json.decode(stored or "{}", type=State)
        with self.db.transaction():
            if stored is None:
                for taxpayer in SEEDED_TAXPAYERS:
                    self.register(taxpayer)
                self.db.code_put(**RETIRED_STATE)
                self.save()
            tin = self.settings.tin
            self.db.taxpayer_meet(tin=tin, name="Sandbox Intermediary Sdn. Bhd.")
            id_and_secret = self.settings.client_id, self.settings.client_secret
            self.put_client(Client(*id_and_secret, tin, intermediary=True))
        self.controls = self.make_controls(self.state.changed)

    def save(self) -> None:
        """Write the state to the file."""
        self.db.state_put(value=encode(self.state).decode())

    def make_controls(self, changed: Mapping[str, object]) -> Controls:
        """Return the start settings with changes. Raises ValueError."""
        started = {
            name: getattr(self.settings, name)
            for name in ("processing_seconds", "token_seconds", "rate_scale")
        }
        return msgspec.convert({**started, **changed}, Controls)

    def put_client(self, client: Client) -> None:
        """Add or replace a client."""
        represents = encode(client.represents).decode()
        self.db.client_put(**{**msgspec.structs.asdict(client), "represents": represents})

    def register(self, taxpayer: Taxpayer) -> None:
        """Add or replace a taxpayer, inside the caller's transaction."""
        tin, name = taxpayer.tin, taxpayer.name or f"Taxpayer {taxpayer.tin}"
        self.db.taxpayer_put(tin=tin, name=name, blocked=taxpayer.blocked)
        self.db.profile_put(tin=tin, members=encode(taxpayer.profile).decode())
        self.db.identity_forget(tin=tin)
        for each in taxpayer.identities:
            self.db.identity_put(tin=tin, type=each.type, value=each.value)

    def now(self) -> float:
        """Return the time of the sandbox clock in Unix seconds."""
        return time.time() + self.state.clock_offset

    def change(self, values: Mapping[str, object]) -> None:
        """Change settings; unfinished documents get a new end of validation. Raises ValueError."""
        changed = {**self.state.changed, **values}
        self.controls = self.make_controls(changed)
        self.state.changed = changed
        with self.db.transaction():
            self.save()
            if {"processing_seconds", "stuck"} & set(values):
                seconds = self.controls.processing_seconds
                self.db.document_plan(now=self.now(), processing_seconds=seconds)

    def row_shown(self, number: str, members: Body) -> Body:
        """Return the members of a row with their replacements."""
        return {**members, **self.state.odd_rows.get(number, {})}

    def reset(self) -> None:
        """Return to the state of the first start."""
        self.db.empty()
        self.load()


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
        """Return what the path names."""
        return self.request.match_info


SANDBOX = web.AppKey("sandbox", Sandbox)
DATE_SHIFT = web.RequestKey("date_shift", float)  # seconds added to the `Date` of the response
