"""Tables of errors with their frequencies, and the seeded choice of the next one."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.harness.failpoint_names import NAMES

from .counters import Marks

#: Multiplies the portal's rate limits, in the service and in the sandbox. Low enough that some
#: requests have to wait.
RATE_SCALE = 40

#: Settings of the service. Times are multiplied on a slow machine, as those of the portal and of
#: the disturbances are. A lease is longer than STALE_SECONDS before the first byte plus the
#: timeout.
TIMES = {
    "PORTAL_CONNECT_TIMEOUT_SECONDS": "0.5",
    "PORTAL_TIMEOUT_SECONDS": "0.8",
    "PORTAL_LEASE_SECONDS": "2.5",
    "PORTAL_CONFIRMATION_GAP_SECONDS": "0.2",
    "PORTAL_POLL_SECONDS": "0.05",
    "PORTAL_POLL_MAX_SECONDS": "0.4",
    "PORTAL_RETRY_SECONDS": "0.02",
    "PORTAL_LOGIN_RETRY_SECONDS": "0.3",
    "PORTAL_BATCH_SECONDS": "0.15",
    "PORTAL_RATE_SCALE": str(RATE_SCALE),
    "CONSOLIDATION_DAYS": "40",
    "SUBMIT_WAIT_SECONDS": "2",
    "REQUESTS_PER_MINUTE": "0",
    "LOG_LEVEL": "WARNING",
    "SECRET_KEY": base64.b64encode(bytes(32)).decode(),
    "WEBHOOK_ALLOW_INTERNAL": "true",
    "WEBHOOK_TIMEOUT_SECONDS": "1",
    "WEBHOOK_RETRY_SCALE": "0.001",
}
#: Names of settings and of members of errors and of the sandbox that are times, and so are
#: multiplied on a slow machine.
TIME_NAMES = ("_SECONDS", "seconds")
#: Seconds in which 14 documents that are submitted at once are Valid, on a machine with two cores
#: and no other work.
USUAL_SECONDS = 0.8
LATE = 1.2  # seconds until the portal processes a request whose sender has given up
PAUSE = (2.8, 3.4)  # seconds of a process; longer than the lease
PAST_SETTLING = (0.5, 1.0)  # seconds by which a long pause exceeds the settling time
SILENCE = 5.0  # seconds until PostgreSQL's side of a silent connection is closed
PORTAL_PAUSE = (0.3, 1.2)
#: Members that make a row of the portal unreadable.
ODD_MEMBERS = (
    {"status": "Frozen"},
    {"dateTimeIssued": "yesterday"},
    {"uuid": "?"},
    {"typeName": "Pro forma"},
)
#: Seconds between two changes of the portal's `search_lag_seconds`, in modes with a settling time
#: that is too short, and by what it is multiplied. On a machine that has become busy, a document
#: would else be listed before it seems absent twice.
LAG_REST, LAG_TIMES = (3, 6), (1, 10)
ODD_AMONG = 30  # the odd row is one of this many latest documents
ODD_REST, ODD_SECONDS = (0.5, 2), (1, 4)  # seconds between two odd rows, and for each


#: Operation, kind of error, its members.
Row = tuple[str, str, dict[str, Any]]


@dataclass(frozen=True)
class Mode:
    """A combination of settings of service and portal.

    `settle` is the settling time in seconds. `detects`: the portal refuses duplicates. `sandbox`
    are settings of the sandbox.
    """

    name: str
    settle: str
    detects: bool
    sandbox: dict[str, Any]


#: Modes of consecutive seeds. In the last mode a document that seemed absent is sent again; the
#: portal accepts it and refuses it later. The first document, which the refusal names, is valid.
TURNS = (0, 1, 0, 2)
#: A sufficient settling time covers the age of an intent (2), a pause, and the delays of the portal
#: until it processes (LATE) and shows (`search_lag_seconds`) a document.
MODES = (
    Mode(
        "settle suffices, portal detects nothing",
        settle="7.5",
        detects=False,
        sandbox={
            "payload_detection": False,
            "duplicate_detection": False,
            "search_lag_seconds": 0.3,
        },
    ),
    Mode(
        "settle too short, portal detects duplicates",
        settle="0.3",
        detects=True,
        sandbox={"payload_detection": True, "duplicate_detection": True, "search_lag_seconds": 6},
    ),
    Mode(
        "settle too short, portal refuses duplicates later",
        settle="0.3",
        detects=True,
        sandbox={"payload_detection": False, "duplicate_detection": True, "search_lag_seconds": 6},
    ),
)


def scale(members: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return settings of the service or members with all times multiplied by a factor."""
    scaled = dict(members)
    for name, value in members.items():
        if name.endswith(TIME_NAMES):
            seconds = float(value) * factor
            scaled[name] = str(seconds) if isinstance(value, str) else seconds
    return scaled


TAKEN_BEFORE = "422, taken before"
#: Errors of a submission: row -> (kind of error, its members).
SUBMIT_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "reset, not taken": ("drop", {}),
    "reset, taken": ("accept_then_drop", {}),
    "202 rejected": ("reject", {}),
    "202 truncated": ("truncate", {}),
    "202 unparsable": ("garbage", {}),
    "202 unparsable, not taken": ("garbage", {"processed": False}),
    "202 names nothing": ("neither", {}),
    "202 over 1 MiB": ("oversized", {}),
    "page, taken": ("html", {"processed": True}),
    "page, not taken": ("html", {}),
    "redirect": ("redirect", {}),
    "400 refused": ("refuse", {}),
    "400 too large": ("refuse", {"code": "MaximumSizeExceeded"}),
    "403 wrong submitter": ("refuse", {"status": 403, "code": "IncorrectSubmitter"}),
    "401": ("unauthorized", {}),
    TAKEN_BEFORE: ("duplicate", {"processed": True, "retry_after": 1}),
    "429 with Retry-After": ("throttle", {"retry_after": 1}),
    "429 without": ("throttle", {}),
    "408": ("error_before", {"status": 408}),
    "5xx, not taken": ("error_before", {"status": 503}),
    "5xx, taken": ("error_after", {"status": 500}),
    "slow answer": ("slow", {"seconds": LATE}),
    "slow to take": ("slow_before", {"seconds": LATE}),
    "dripping answer": ("drip", {"seconds": LATE}),
    "wrong date": ("wrong_date", {"seconds": 600}),
}
#: Other errors of the portal: row -> (operation, kind, members). A failed login prevents a
#: submission from being sent.
OTHER_ROWS: dict[str, Row] = {
    "login reset": ("login", "drop", {}),
    "login 5xx": ("login", "error_before", {"status": 503}),
    "login 429": ("login", "throttle", {"retry_after": 1}),
    "listing 5xx": ("search", "error_before", {"status": 503}),
    "listing truncated": ("search", "truncate", {}),
    "listing slow": ("search", "slow", {"seconds": LATE}),
    "poll unknown": ("submission", "forget", {}),
    "poll 5xx": ("submission", "error_before", {"status": 500}),
    "poll unparsable": ("submission", "garbage", {"status": 200}),
    "cancel taken, reset": ("state", "accept_then_drop", {}),
    "cancel 5xx": ("state", "error_before", {"status": 503}),
    "cancel slow": ("state", "slow", {"seconds": LATE}),
    "cancel late": ("state", "slow_before", {"seconds": LATE}),
}
ROWS: dict[str, Row] = {
    **{name: ("submit", *fault) for name, fault in SUBMIT_ROWS.items()},
    **OTHER_ROWS,
}
#: Rows without an order: the run counts them itself.
OWN_ROWS = ("portal killed", "portal paused", "202 accepted")
KNOWN_AGAIN = "422 of the portal itself"  # in modes with payload detection


def pick_rarest(random: Random, names: Iterable[str], counts: Mapping[str, int]) -> str:
    """Return one of the names that were counted least often."""
    names = list(names)
    return min(random.sample(names, len(names)), key=lambda name: counts[name])


def make_plan(random: Random, marked: Marks, starts: int, action: str) -> dict[str, Any]:
    """Return {point, times, action} for one process: the failpoint and the pass at which it acts.

    The failpoint is one that was rarely used, the pass one that the process is likely to reach.
    `marked` are the marks so far, `starts` is the number of processes so far.
    """
    # A mode may never pass some failpoints.
    passed = [name for name in NAMES if marked["pass", name]]
    point = pick_rarest(
        random,
        passed or NAMES,
        {name: marked[action, name] for name in NAMES},
    )
    usual = marked["pass", point] // (4 * max(1, starts))
    return {"point": point, "times": random.randint(1, max(1, usual)), "action": action}
