"""What can change while the sandbox runs, and the sandbox itself: its file, its clock, its controls."""

import json
import time
from dataclasses import asdict, dataclass, fields, replace

from aiohttp import web

from .database import empty, open_database, sql, transaction
from .settings import SEEDED_TAXPAYERS

#: about 31 years: more than any window, less than any calendar
MOST_SECONDS = 10**9


@dataclass(frozen=True)
class Controls:
    """Times in seconds. Each member can be set through the administration surface."""

    processing_seconds: float = 2  # from the 202 to the end of validation
    stuck: bool = False  # nothing leaves Submitted
    search_lag_seconds: float = 0  # lists show a document only so long after receipt
    not_found_seconds: float = 0  # a submission is not found for so long after the 202
    payload_window_seconds: float = 600
    duplicate_window_seconds: float = 7200
    cancel_window_seconds: float = 259200
    age_window_seconds: float = 259200  # how old an issue date-time may be
    rate_scale: float = 1
    payload_detection: bool = True  # 422 for the same body again
    duplicate_detection: bool = True  # step 3 of the validation
    invalid_counts: bool = True  # an Invalid document counts as processed for step 3
    duplicate_code: str = "DV302"  # or DS302
    token_seconds: float = 3600
    mismatch_status: int = 400  # or 403: the form of the issuer mismatch
    error_dialect: str = "transport"  # or "standard"
    strict_register: bool = False  # a TIN that is not registered makes a document Invalid
    strict_totals: bool = False  # wrong totals are refused; otherwise they are a warning
    consolidated_state_17: bool = True  # state 17 in Malaysia passes in a consolidated document


#: member -> the values it may have, where the type does not say it all
CHOICES = {
    "mismatch_status": (400, 403),
    "error_dialect": ("transport", "standard"),
    "duplicate_code": ("DV302", "DS302"),
}


def checked_controls(values):
    """The values with the types of Controls. Raises ValueError naming the first wrong one."""
    types = {field.name: field.type for field in fields(Controls)}
    for name, value in values.items():
        if name not in types:
            raise ValueError(f"{name} is not a setting")
        if not fits(value, types[name]) or value not in CHOICES.get(name, (value,)):
            raise ValueError(f"{name} cannot be {value!r}")
    return values


def fits(value, kind):
    if kind is float:
        return type(value) in (int, float) and 0 <= value <= MOST_SECONDS
    return type(value) is kind


class Sandbox:
    """State of one sandbox; every method commits before it returns, unless a transaction is open."""

    def __init__(self, settings):
        self.settings = settings
        self.db = open_database(settings.state)
        self.load()

    def load(self):
        """Reads what the file remembers, over what the settings say; an empty file is furnished first."""
        stored = {row["name"]: json.loads(row["value"]) for row in sql.setting_all(self.db)}
        with transaction(self.db):
            if "clock_offset" not in stored:
                self.furnish()
            self.admit_client()
        self.clock_offset = stored.pop("clock_offset", 0)
        self.odd_rows = stored.pop("odd_rows", {})
        started = {
            name: getattr(self.settings, name)
            for name in ("processing_seconds", "token_seconds", "rate_scale")
        }
        self.controls = replace(Controls(), **{**started, **stored})

    def furnish(self):
        """Registers the seeded taxpayers."""
        for tin, name, identities in SEEDED_TAXPAYERS:
            self.register(tin, name, identities)
        self.remember("clock_offset", 0)

    def admit_client(self):
        """The client is as the settings say, at every start."""
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

    def register(self, tin, name, identities, blocked=False):
        """Adds or replaces a taxpayer, inside the caller's transaction."""
        sql.taxpayer_put(self.db, tin=tin, name=name, blocked=blocked)
        sql.identity_forget(self.db, tin=tin)
        for kind, value in identities:
            sql.identity_put(self.db, tin=tin, type=kind, value=value)

    def remember(self, name, value):
        sql.setting_put(self.db, name=name, value=json.dumps(value))

    def now(self):
        return time.time() + self.clock_offset

    def move_clock(self, seconds):
        self.clock_offset += seconds
        self.remember("clock_offset", self.clock_offset)

    def change(self, values):
        """Sets controls; documents that are not finished get a new end of validation. Raises ValueError."""
        self.controls = replace(self.controls, **checked_controls(values))
        with transaction(self.db):
            for name, value in values.items():
                self.remember(name, value)
            if {"processing_seconds", "stuck"} & set(values):
                seconds = self.controls.processing_seconds
                sql.document_plan(self.db, now=self.now(), processing_seconds=seconds)

    def shown(self):
        return asdict(self.controls)

    def show_oddly(self, number, members):
        """Show the documents of a number with other members from now on, or as they are where there are none."""
        self.odd_rows = {**self.odd_rows, number: members}
        if members is None:
            del self.odd_rows[number]
        self.remember("odd_rows", self.odd_rows)

    def row_shown(self, number, members):
        """Return the members of a row as they are shown."""
        return {**members, **self.odd_rows.get(number, {})}

    def reset(self):
        empty(self.db)
        self.load()

    def close(self):
        self.db.close()


SANDBOX = web.AppKey("sandbox", Sandbox)
#: the row of the token a call carries
CALLER = web.RequestKey("caller", object)
DATE_SHIFT = web.RequestKey("date_shift", float)  # seconds by which the Date of the answer is wrong
