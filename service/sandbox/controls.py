"""Settings that can change at run time, and the state of a sandbox: file, clock, settings."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from aiohttp import web

from .database import Row, empty, open_database, sql, transaction
from .settings import SEEDED_TAXPAYERS, Settings

#: About 31 years: longer than any window, and still a date that the calendar can represent.
MOST_SECONDS = 10**9


#: The start and the end of the validity of a code in Unix seconds; None: open.
Validity = tuple[float | None, float | None]


@dataclass(frozen=True)
class Controls:
    """Settings of the administration API. Times are in seconds."""

    processing_seconds: float = 2  # from the 202 response to the end of validation
    stuck: bool = False  # no document leaves Submitted
    search_lag_seconds: float = 0  # from receipt until lists show a document
    not_found_seconds: float = 0  # from the 202 response until a submission is found
    payload_window_seconds: float = 600
    duplicate_window_seconds: float = 7200
    cancel_window_seconds: float = 259200
    age_window_seconds: float = 259200  # maximum age of an issue date-time
    rate_scale: float = 1
    payload_detection: bool = True  # 422 for a repeated body
    duplicate_detection: bool = True  # step 3 of the validation
    invalid_counts: bool = True  # an Invalid document counts as processed for step 3
    duplicate_code: str = "DV302"  # or DS302
    token_seconds: float = 3600
    mismatch_status: int = 400  # or 403: status of an issuer mismatch
    error_dialect: str = "transport"  # or "standard"
    strict_register: bool = False  # an unregistered TIN makes a document Invalid
    strict_totals: bool = False  # wrong totals are refused instead of reported as warnings
    consolidated_state_17: bool = True  # a consolidated document may have state 17 in Malaysia


#: Setting -> allowed values, if its type allows others.
CHOICES: dict[str, tuple[Any, ...]] = {
    "mismatch_status": (400, 403),
    "error_dialect": ("transport", "standard"),
    "duplicate_code": ("DV302", "DS302"),
}


def check_controls(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values if they fit Controls. Raises ValueError that names the first wrong one."""
    types = {field.name: field.type for field in fields(Controls)}
    for name, value in values.items():
        if name not in types:
            raise ValueError(f"{name} is not a setting")
        if types[name] is float:
            fits = type(value) in (int, float) and 0 <= value <= MOST_SECONDS
        else:
            fits = type(value) is types[name] and value in CHOICES.get(name, (value,))
        if not fits:
            raise ValueError(f"{name} cannot be {value!r}")
    return values


class Sandbox:
    """State of one sandbox. Every method commits, unless the caller has opened a transaction."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.db = open_database(settings.state)
        self.clock_offset: float = 0
        self.odd_rows: dict[str, dict[str, Any]] = {}
        self.code_lists: dict[str, frozenset[str]] = {}
        self.controls = Controls()
        self.load()

    def load(self) -> None:
        """Read the stored state, which overrides the start settings. Fill an empty file first."""
        stored = {row["name"]: json.loads(row["value"]) for row in sql.setting_all(self.db)}
        with transaction(self.db):
            if "clock_offset" not in stored:
                for tin, name, identities in SEEDED_TAXPAYERS:
                    self.register(tin, name, identities)
                self.store("clock_offset", 0)
            self.put_client()
        self.clock_offset = stored.pop("clock_offset", 0)
        self.odd_rows = stored.pop("odd_rows", {})
        lists: dict[str, list[str]] = stored.pop("code_lists", {})
        self.code_lists = {name: frozenset(codes) for name, codes in lists.items()}
        started = {
            name: getattr(self.settings, name)
            for name in ("processing_seconds", "token_seconds", "rate_scale")
        }
        self.controls = replace(Controls(), **{**started, **stored})

    def put_client(self) -> None:
        """Store the client of the start settings, at every start."""
        sql.taxpayer_meet(self.db, tin=self.settings.tin, name="Sandbox Intermediary Sdn. Bhd.")
        sql.client_put(
            self.db,
            client_id=self.settings.client_id,
            client_secret=self.settings.client_secret,
            tin=self.settings.tin,
            intermediary=True,
            represents=None,
            blocked=False,
        )

    def register(
        self, tin: str, name: str, identities: Iterable[tuple[str, str]], blocked: bool = False
    ) -> None:
        """Add or replace a taxpayer, inside the caller's transaction."""
        sql.taxpayer_put(self.db, tin=tin, name=name, blocked=blocked)
        sql.identity_forget(self.db, tin=tin)
        for kind, value in identities:
            sql.identity_put(self.db, tin=tin, type=kind, value=value)

    def store(self, name: str, value: Any) -> None:
        """Write one item of the state to the file."""
        sql.setting_put(self.db, name=name, value=json.dumps(value))

    def now(self) -> float:
        """Return the time of the sandbox clock in Unix seconds."""
        return time.time() + self.clock_offset

    def move_clock(self, seconds: float) -> None:
        """Move the clock forward, or back if `seconds` is negative."""
        self.clock_offset += seconds
        self.store("clock_offset", self.clock_offset)

    def change(self, values: Mapping[str, Any]) -> None:
        """Change settings; unfinished documents get a new end of validation. Raises ValueError."""
        self.controls = replace(self.controls, **check_controls(values))
        with transaction(self.db):
            for name, value in values.items():
                self.store(name, value)
            if {"processing_seconds", "stuck"} & set(values):
                seconds = self.controls.processing_seconds
                sql.document_plan(self.db, now=self.now(), processing_seconds=seconds)

    def show_oddly(self, number: str, members: dict[str, Any] | None) -> None:
        """Replace members in all responses about the documents of a number. None ends it."""
        self.odd_rows = {**self.odd_rows, number: members or {}}
        if members is None:
            del self.odd_rows[number]
        self.store("odd_rows", self.odd_rows)

    def put_code_list(self, name: str, codes: Mapping[str, Validity]) -> None:
        """Replace a code list. The limits of its codes replace those that they had."""
        lists = {**self.code_lists, name: frozenset(codes)}
        with transaction(self.db):
            for code, (start, end) in codes.items():
                if start is not None or end is not None:
                    sql.code_put(self.db, list=name, code=code, active_from=start, active_to=end)
            self.store("code_lists", {name: sorted(listed) for name, listed in lists.items()})
        self.code_lists = lists

    def row_shown(self, number: str, members: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a row with their replacements."""
        return {**members, **self.odd_rows.get(number, {})}

    def reset(self) -> None:
        """Return to the state of the first start."""
        empty(self.db)
        self.load()


SANDBOX = web.AppKey("sandbox", Sandbox)
#: The row of the token of a request.
CALLER = web.RequestKey("caller", Row)
DATE_SHIFT = web.RequestKey("date_shift", float)  # seconds added to the `Date` of the response
