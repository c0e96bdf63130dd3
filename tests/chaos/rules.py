"""Rules about what the service derives from documents: totals, amounts, events, webhooks, audit.

A rule yields one element for each case that it judges: the violation, or None. A run in which a
rule had no case has not tested it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from service.documents.states import (
    DOCUMENT_TRANSITIONS,
    LOCKED,
    SUBMITTED_TRANSITIONS,
    DocumentStatus,
)

from .clients import KeyedRequest, Record
from .facts import Event, Facts, Subject
from .receiver import Endpoint

#: A case without a violation is None.
Case = str | None
Rule = Callable[[Facts], Iterator[Case]]

#: Event -> status of its record after it. Other events do not change the status. All but the first
#: name the submitted document that changed; without one, such an event changes nothing.
STATUS_AFTER: dict[str, DocumentStatus] = {
    "submitting": "Submitting",
    "submitted": "Submitted",
    "valid": "Valid",
    "invalid": "Invalid",
    "cancelled": "Cancelled",
    "rejected": "Draft",
    "not_sent": "Draft",
}
#: Events for which the record is not locked.
CHANGES = {"updated", "deleted"}
#: Kind -> status after the creation.
FIRST = {"invoice": "Draft", "note": "Draft", "consolidated": "Draft", "request": "Pending"}
#: Event -> action in the audit log, which has one entry for each event.
AUDITED = {"submitting": "submit", "deleted": "delete"}
CANCEL = "cancel"  # action; a cancellation that is requested again has several entries
#: Kind -> name of its records in the audit log.
NAMES = {
    "invoice": "invoice",
    "note": "adjustment note",
    "consolidated": "consolidated invoice",
    "request": "e-invoice request",
}
#: Statuses of responses that no repetition receives.
NOT_REPLAYED = {401, 408, 409, 413, 415, 429}


def name_cases(rule: Rule) -> str:
    return f"judged {rule.__name__}"


# Lists and amounts


def totals(facts: Facts) -> Iterator[Case]:
    """Judge the maintained counters and `meta.total` of all lists against the records."""
    for row in facts["counters"]:
        is_right = row["maintained"] == row["counted"]
        yield None if is_right else f"counter {dict(row)}"
    counted: Counter[tuple[str, int, str | None]] = Counter()
    for row in facts["records"]:
        if not row["is_deleted"]:
            counted[row["kind"], row["company_id"], None] += 1
            counted[row["kind"], row["company_id"], row["status"]] += 1
    for total in facts.totals:
        expected = counted[total.kind, total.company, total.status]
        yield None if total.total == expected else f"{total} instead of {expected}"


def adjusted_amounts(facts: Facts) -> Iterator[Case]:
    """Judge the adjusted amount of each document with notes against its Valid notes."""
    for row in facts["adjustments"]:
        final = row["amount"] + row["sum_of_valid"]
        is_right = row["adjusted_by"] == row["sum_of_valid"] and row["returned"] in (None, final)
        yield None if is_right and final >= 0 else str(dict(row))


def outcomes(facts: Facts) -> Iterator[Case]:
    """Judge the last submission of each record against its latest submitted document.

    A later submission that the service refused made no submitted document.
    """
    for row in facts["outcomes"]:
        yield None if row["shown"] in (row["status"], "NotSent") else str(dict(row))


# Events


def feed(facts: Facts) -> Iterator[Case]:
    """Judge the feed of each company, read in pages: each stored event once, in its order."""
    for company in facts.companies:
        stored = [row["id"] for row in facts["events"] if row["company_id"] == company["id"]]
        shown = [event.id for event in facts.feed if event.company == company["id"]]
        name = f"company {company['id']}"
        times_stored, times_shown = Counter(stored), Counter(shown)
        for event in times_stored | times_shown:
            is_right = times_stored[event] == times_shown[event] == 1
            yield None if is_right else f"{name}: event {event}, shown {times_shown[event]} times"
        yield None if shown == stored else f"{name}: the order is {shown[:20]}, not {stored[:20]}"


def events(facts: Facts) -> Iterator[Case]:
    """Judge the events of each record against its state and its submitted documents."""
    grouped = _group_events(facts)
    documents: dict[Subject, dict[int, str]] = defaultdict(dict)
    for row in facts["documents"]:
        subject = row["kind"], row["company_id"], row["record_id"]
        documents[subject][row["id"]] = row["status"]
    for subject, row in facts.records.items():
        history = grouped.pop(subject, [])
        violations = [
            *_find_disorder(history),
            *_find_wrong_status(subject, row, history),
            *_find_wrong_documents(documents[subject], history),
        ]
        yield _describe(subject, history, violations)
    for subject, history in grouped.items():
        yield _describe(subject, history, ["there is no such record"])


def acknowledged_events(facts: Facts) -> Iterator[Case]:
    """Judge the events of each record against the responses that its client received."""
    grouped = _group_events(facts)
    for known in facts.known.records:
        if known.id is not None:
            subject = known.kind.name, known.company, known.id
            history = grouped[subject]
            yield _describe(subject, history, [*_find_missing_events(known, history)])


def _group_events(facts: Facts) -> dict[Subject, list[Event]]:
    """Return {record: its events in the order of the feed}."""
    grouped: dict[Subject, list[Event]] = defaultdict(list)
    for event in facts.feed:
        if event.subject is not None:
            grouped[event.subject].append(event)
    return grouped


def _describe(subject: Subject, history: Sequence[Event], violations: Iterable[str]) -> Case:
    shown = [(event.id, event.name) for event in history]
    text = "; ".join(violations)
    return f"{subject}: {text}; events {shown}" if text else None


def _find_disorder(history: Sequence[Event]) -> Iterator[str]:
    """Yield a text if ids do not increase: changes of a record run one after another."""
    ids = [event.id for event in history]
    if ids != sorted(set(ids)):
        yield "the ids do not increase"


def _find_wrong_status(subject: Subject, row: Any, history: Sequence[Event]) -> Iterator[str]:
    """Replay the events of a record. Yield each that was not possible, and another final state."""
    names = [event.name for event in history]
    if names[:1] != ["created"] or names.count("created") != 1:
        yield "not created once"
    if names.count("deleted") != row["is_deleted"] or "deleted" in names[:-1]:
        yield "not deleted once and last" if row["is_deleted"] else "deleted"
    status = FIRST[subject[0]]
    for event in history:
        after = _find_status_after(event)
        if after is not None and (
            status not in DOCUMENT_TRANSITIONS or after not in DOCUMENT_TRANSITIONS[status]
        ):
            yield f"{event.name} while {status}"
        if event.name in CHANGES and status in LOCKED:
            yield f"{event.name} while {status}"
        status = after or status
    if status != row["status"]:
        yield f"the status is {row['status']}"


def _find_status_after(event: Event) -> DocumentStatus | None:
    """Return the status of a record after an event, or None if the event does not change it."""
    changes = event.name == "submitting" or "submitted_document_id" in event.data
    return STATUS_AFTER.get(event.name) if changes else None


def _find_wrong_documents(statuses: dict[int, str], history: Sequence[Event]) -> Iterator[str]:
    """Yield the submitted documents whose events do not lead to their status."""
    if sum(event.name == "submitting" for event in history) != len(statuses):
        yield f"{len(statuses)} submitted documents"
    reached = dict.fromkeys(statuses, "Submitting")
    for event in history:
        if document := event.data.get("submitted_document_id"):
            before, after = reached.get(document, "none"), event.data["status"]
            if before not in SUBMITTED_TRANSITIONS or after not in SUBMITTED_TRANSITIONS[before]:
                yield f"submitted document {document} from {before} to {after}"
            reached[document] = after
    if reached != statuses:
        yield f"submitted documents {statuses}, by events {reached}"


def _find_missing_events(known: Record, history: Sequence[Event]) -> Iterator[str]:
    """Yield each acknowledged effect without its event, and too many updates."""
    counts = Counter(event.name for event in history)
    if not known.updates <= counts["updated"] <= known.updates + known.possible_updates:
        yield f"{known.updates} to {known.updates + known.possible_updates} updates"
    if counts["cancelled"] < known.cancels:
        yield f"{known.cancels} cancellations"
    if known.is_deleted and not counts["deleted"]:
        yield "deleted"
    if known.is_submitted and not counts["submitted"]:
        yield "submitted"
    for status in known.seen_statuses:
        if status not in {"Draft", *(STATUS_AFTER.get(event.name) for event in history)}:
            yield f"seen as {status}"


# Webhooks


def deliveries(facts: Facts) -> Iterator[Case]:
    """Judge the requests to each endpoint against the feed: all, signed, no other.

    Those to an ordered endpoint are in the order of the feed.
    """
    attempts = {
        (row["company_id"], row["endpoint_id"], row["event_id"]): row["attempts"]
        for row in facts["attempts"]
    }
    for endpoint in facts.known.endpoints:
        expected = {
            event.id: event
            for event in facts.feed
            if event.company == endpoint.company
            and event.id > endpoint.after
            and (not endpoint.types or event.type in endpoint.types)
        }
        name = f"webhook {endpoint.id} of company {endpoint.company}"
        yield from (f"{name}: {text}" for text in _find_wrong_arrivals(endpoint, expected))
        accepted = {arrival.event for arrival in endpoint.arrivals if arrival.is_accepted}
        for event in expected.values():
            is_there = event.id in accepted
            yield None if is_there else f"{name}: {event.type} {event.id} was not delivered"
        repeated = {
            event
            for (company, number, event), times in attempts.items()
            if (company, number) == (endpoint.company, endpoint.id) and times > 1
        }
        late = _find_late(endpoint, list(expected), repeated) if endpoint.is_ordered else ()
        yield from (f"{name}: event {event} arrived after later ones" for event in late)


def _find_wrong_arrivals(endpoint: Endpoint, expected: dict[int, Event]) -> Iterator[str]:
    for arrival in endpoint.arrivals:
        event = expected.get(arrival.event)
        if event is None:
            yield f"event {arrival.event} does not belong to it"
        elif (arrival.body["type"], arrival.body["data"]) != (event.type, event.data):
            yield f"event {event.id} has the body {arrival.body}"
        if not arrival.is_signed:
            yield f"event {arrival.event} is not signed"


def _find_late(endpoint: Endpoint, order: Sequence[int], repeated: set[int]) -> Iterator[int]:
    """Yield the events that first arrived after later ones, except those sent more than once.

    A failed attempt does not delay later events.
    """
    places = {event: place for place, event in enumerate(order)}
    last = -1
    for event in dict.fromkeys(arrival.event for arrival in endpoint.arrivals):
        place = places.get(event, last)
        if place < last and event not in repeated:
            yield event
        last = max(last, place)


# Audit log


def audit(facts: Facts) -> Iterator[Case]:
    """Judge the audit log against the events and the acknowledged effects: one entry, an actor."""
    entries: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for row in facts["audit"]:
        entries[row["company_id"], row["subject"]].append(row)
    keys = {company["id"]: f"key {company['key_id']}" for company in facts.companies}
    grouped = _group_events(facts)
    cancels = {
        (known.kind.name, known.company, known.id): known.cancels for known in facts.known.records
    }
    for subject in facts.records:
        kind, company, number = subject
        rows = entries[company, f"{NAMES[kind]} {number}"]
        events = Counter(event.name for event in grouped[subject])
        actions = Counter(row["action"] for row in rows)
        violations = [
            f"{actions[action]} entries {action} for {events[event]} events {event}"
            for event, action in AUDITED.items()
            if actions[action] != events[event]
        ]
        if actions[CANCEL] < cancels.get(subject, 0):
            violations.append(f"{actions[CANCEL]} entries {CANCEL} for {cancels[subject]}")
        violations += [
            f"the actor is {row['actor']}" for row in rows if row["actor"] != keys[company]
        ]
        if rows or violations:
            yield _describe(subject, grouped[subject], violations)


# Repetitions


def repetitions(facts: Facts) -> Iterator[Case]:
    """Judge the responses to requests that were repeated with an Idempotency-Key."""
    created = Counter((row["kind"], row["company_id"], row["code"]) for row in facts["records"])
    for request in facts.known.keyed:
        if len(request.answers) > 1:
            violations = [*_find_wrong_replays(request)]
            if request.creates is not None:
                number = created[request.creates, request.company, request.code]
                violations += _find_wrong_creation(request, number)
                violations += [] if request.is_final else ["no final response"]
            yield f"{request}: {'; '.join(violations)}" if violations else None


def _find_wrong_replays(request: KeyedRequest) -> Iterator[str]:
    """Yield the replays of responses that are not stored, or that differ."""
    replays = [answer for answer in request.answers if answer.is_replayed]
    for answer in replays:
        if answer.status is None or answer.status in NOT_REPLAYED or answer.status >= 500:
            yield f"the response {answer.status} was replayed"
    if not request.has_interim and any(answer != replays[0] for answer in replays):
        yield "the replays differ"


def _find_wrong_creation(request: KeyedRequest, number: int) -> Iterator[str]:
    """Yield a creation that happened twice, or was answered twice."""
    successes = [answer for answer in request.answers if answer.status == 201]
    if number > 1 or (successes and number != 1):
        yield f"{number} records"
    if sum(not answer.is_replayed for answer in successes) > 1:
        yield "performed twice"
    if len({answer.body["data"]["id"] for answer in successes}) > 1:
        yield "several ids"


RULES: tuple[Rule, ...] = (
    totals,
    adjusted_amounts,
    outcomes,
    feed,
    events,
    acknowledged_events,
    deliveries,
    audit,
    repetitions,
)
