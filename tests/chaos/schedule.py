"""What goes wrong, and how often: tables, and the seeded choice of what comes next."""

from dataclasses import dataclass

from service import failpoints

#: The portal's quotas times this, in the service and in the sandbox: low enough that some requests
#: have to wait.
RATE_SCALE = 40

#: Times of the service. A lease outlives what it is for: STALE_SECONDS before the first byte, then
#: the timeout.
TIMES = {
    "PORTAL_CONNECT_TIMEOUT_SECONDS": "0.5",
    "PORTAL_TIMEOUT_SECONDS": "0.8",
    "PORTAL_LEASE_SECONDS": "2.5",
    "PORTAL_PROOF_GAP_SECONDS": "0.2",
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
}
LATE = 1.2  # seconds: a call that the portal takes up after its sender has given up
PAUSE = (2.8, 3.4)  # seconds of a process; longer than the lease
PAST_SETTLING = (0.5, 1.0)  # seconds by which a long pause exceeds the settling time
SILENCE = 5.0  # seconds until PostgreSQL's side of a silent connection is closed
# Of a failpoint before the one that ends a process: later ones it may not live to see
MOST_PASSES = 3
PORTAL_PAUSE = (0.3, 1.2)
#: How the portal shows a document that cannot be read: members of its row.
ODD_MEMBERS = (
    {"status": "Frozen"},
    {"dateTimeIssued": "yesterday"},
    {"uuid": "?"},
    {"typeName": "Pro forma"},
)
ODD_AMONG = 30  # of the latest documents one is shown so
ODD_REST, ODD_SECONDS = (0.5, 2), (1, 4)  # seconds between two such documents, and for each


@dataclass(frozen=True)
class Mode:
    """A service and a portal that are made for each other, or are not. `detects`: the portal refuses duplicates."""

    name: str
    settle: str
    detects: bool
    sandbox: dict


#: The seeds take the modes in these turns. In the last mode a document that seemed absent is sent
#: again, and the portal
#: takes it and refuses it later: the first, which the refusal names, is the one to keep.
TURNS = (0, 1, 0, 2)
#: The settling time covers the age of an intent (2), a pause, and what the portal takes up late or
#: shows late (below).
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

TAKEN_BEFORE = "422, taken before"
#: How the portal answers a submit: row -> (kind of fault, its members).
SUBMIT_ROWS = {
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
#: What else of the portal fails: row -> (operation, kind, members). A login that fails keeps a
#: submit from being sent.
OTHER_ROWS = {
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
ROWS = {**{name: ("submit", *fault) for name, fault in SUBMIT_ROWS.items()}, **OTHER_ROWS}
#: Rows that no order makes: the run counts them itself.
OWN_ROWS = ("portal killed", "portal paused", "202 accepted")
KNOWN_AGAIN = "422 of the portal itself"  # where it detects the same bytes


def rarest(random, names, counts):
    """One of the names that came least often."""
    return min(random.sample(list(names), len(names)), key=lambda name: counts[name])


def plan(random, marked, starts, action):
    """{point, times, action} for one process: a point that ended few, at a pass it is likely to come to.

    `marked` counts what failpoints wrote so far, `starts` the processes so far.
    """
    # Not every mode comes to every point
    passed = [name for name in failpoints.NAMES if marked["pass", name]]
    point = rarest(
        random,
        passed or failpoints.NAMES,
        {name: marked[action, name] for name in failpoints.NAMES},
    )
    usual = marked["pass", point] // (4 * max(1, starts))
    return {"point": point, "times": random.randint(1, max(1, usual)), "action": action}
