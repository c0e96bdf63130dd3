"""The submission state machine: `step(submission, event, times) -> (submission, commands)`.

It has no I/O, no clock and no randomness. A `Submission` is the stored state. An event is something
that happened to it; commands are carried out in their order, and the process can crash after each
of them. The machine guarantees:

- No byte is sent before the intent is committed. A submission found in Sending was possibly
  received.
- An unclear response means an unknown outcome, never a failure. The documents stay locked until the
  outcome is known.
- Absence has to be confirmed twice, by complete listings after the settling time, before anything
  is sent again. A refusal of a possibly received submission is checked against the portal again.
- `on_absence` decides what follows confirmed absence: `retry` sends again, `release` unlocks the
  documents, because the caller received an error.

`times` are the settings of the service.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from service.config import Config
from service.documents import states
from service.documents.ubl.pointers import locate_errors
from service.errors import make_reason
from service.portal.errors import Duplicate
from service.portal.responses import SubmissionReceipt
from service.submission.machine.types import (
    NO_DELAY,
    Change,
    Claimed,
    Command,
    Error,
    Event,
    ListingEnded,
    ListingUnavailable,
    LockUnavailable,
    NotReceived,
    OutcomeUnknown,
    Part,
    RecordSightings,
    RefusalReceived,
    ReleaseClaim,
    RequestChanged,
    RequestFailed,
    Sighting,
    SightingsReceived,
    StatesReceived,
    StatesUnavailable,
    Submission,
    SubmittedDocument,
    Write,
)

#: Claims without a result after which a submission is assumed to crash its worker. It is not lower
#: because a process that is killed for another reason counts a claim of each submission in hand.
MOST_CLAIMS = 10
LONGEST_BACKOFF = timedelta(minutes=5)  # after a transient error
LONGEST_LOOK_DELAY = timedelta(seconds=60)  # between two listings for an Uncertain submission
LISTING_DEADLINE = timedelta(hours=24)  # without a readable listing
VAIN_SENDS = 5  # of promised work, each absent afterwards, before something else is tried
#: Times `portal_unknown`, for an accepted submission that stays unknown or whose polls are refused.
UNKNOWN_PERIODS = 24
CANCEL_GRACE = timedelta(hours=2)  # for changes in the last minutes of the cancel window
NOT_FOUND, REFUSED_AGAIN = "NotFound", "RefusedAgain"
#: Codes of the errors that are kept while the outcome is looked up: what follows from absence
#: depends on them.
KEPT_CODES = {REFUSED_AGAIN, Duplicate.code}

OUTCOME_UNKNOWN = make_reason("OutcomeUnknown", "The portal gave no clear response.")
ABANDONED = make_reason("OutcomeUnknown", "The process that was sending it recorded no result.")
UNNAMED = make_reason("OutcomeUnknown", "The portal's receipt does not name every document.")
FRUITLESS = make_reason(
    "NeedsPerson", "Several attempts to process the submission ended without a result."
)
NEVER_THERE = make_reason(
    "NotReceived", "The portal did not receive the document. It can be submitted again."
)
UNPROVEN = make_reason(
    "NotProven",
    "The portal has a document with this number and issue time "
    "that could not be proven to be the one that was sent.",
)
SENT_IN_VAIN = make_reason(
    "SentInVain", "It was sent several times, and the portal did not receive it."
)
REPORTED = make_reason(
    "ReceivedBefore",
    "The portal reported that it had received the same document before, and does not list it.",
)
REQUEST_CHANGED = make_reason(
    "RequestChanged", "The stored documents differ from those that were stored or sent first."
)
STILL_UNKNOWN = "The portal does not know the submission. The latest request failed: {}"
NOTHING_SENT = "Nothing was sent."
NOT_SENT = "The request to the portal failed: {} " + NOTHING_SENT


def step(submission: Submission, event: Event, times: Config) -> tuple[Submission, list[Command]]:
    """Return the commands that follow an event, and the submission after they are carried out.

    Raises LookupError for an event that the state does not allow.
    """
    if isinstance(event, Claimed) and submission.claims > MOST_CLAIMS:
        commands: list[Command] = [Write("NeedsPerson", error=FRUITLESS)]
    else:
        commands = RULES[submission.state, type(event)](submission, event, times)
    for command in commands:
        submission = apply_command(submission, command)
    return submission, commands


def apply_command(submission: Submission, command: Command) -> Submission:
    """Return the stored state after a command. Raises ValueError for a move that is not allowed."""
    if isinstance(command, RecordSightings):
        new = [one for one in command.sightings if one not in submission.sightings]
        return replace(submission, sightings=(*submission.sightings, *new))
    return _apply_write(submission, command) if isinstance(command, Write) else submission


def mark_sending(submission: Submission) -> Submission:
    """Return a Queued submission after the commit of the intent to send it."""
    first = submission.first_sent_at or submission.now
    sends = submission.sends + 1
    return replace(_restart_settling(submission), state="Sending", first_sent_at=first, sends=sends)


def _restart_settling(submission: Submission) -> Submission:
    """Return the submission as sent now, so that no listing has confirmed its absence yet."""
    return replace(
        submission, last_sent_at=submission.now, absence_confirmations=0, absence_confirmed_at=None
    )


def _apply_write(submission: Submission, command: Write) -> Submission:
    moves = states.SUBMISSION_TRANSITIONS[submission.state]
    if command.state != submission.state and command.state not in moves:
        raise ValueError(f"A submission that is {submission.state} cannot become {command.state}.")
    is_repeated = command.state == submission.state or (
        (submission.state, command.state) == ("Sending", "Queued")
    )
    if command.still_sent:
        submission = _restart_settling(submission)
    moved = command.moved_ids
    staying = [doc for doc in submission.docs if doc.id not in moved]
    is_absent = command.confirms_absence
    is_kept = command.error is not None and command.error["code"] in KEPT_CODES
    return replace(
        submission,
        state=command.state,
        docs=tuple(apply_changes(doc, command.changes) for doc in staying),
        claims=0,
        reads=submission.reads + 1 if is_repeated and not is_absent else 0,
        absence_confirmations=submission.absence_confirmations + is_absent,
        absence_confirmed_at=submission.now if is_absent else submission.absence_confirmed_at,
        submission_uid=command.uid or submission.submission_uid,
        possibly_received=submission.possibly_received or (is_absent and command.state == "Queued"),
        refusal=command.error if is_kept else None,
    )


def apply_changes(doc: SubmittedDocument, changes: Iterable[Change]) -> SubmittedDocument:
    """Return a document with its change, if its status allows that change."""
    for change in changes:
        if change.id == doc.id and change.status in states.SUBMITTED_TRANSITIONS[doc.status]:
            return replace(
                doc,
                status=change.status,
                uuid=change.uuid or doc.uuid,
                long_id=change.long_id or doc.long_id,
                validated_at=change.validated_at or doc.validated_at,
            )
    return doc


# Sending


def _proceed(submission: Submission, event: Claimed, times: Config) -> list[Command]:
    """Write nothing: the flow that holds the claim sends the submission, or polls it."""
    return []


def _postpone(submission: Submission, event: NotReceived, times: Config) -> list[Command]:
    """Handle a rate limit, login or connection that failed before the intent was committed."""
    if submission.on_absence == "retry" and event.held_for is not None:
        return [ReleaseClaim(event.held_for)]
    return _retry_or_release(submission, event, times)


def _stop_changed(submission: Submission, event: RequestChanged, times: Config) -> list[Command]:
    """Request manual review: the portal would not recognise the request as the earlier one."""
    return [Write("NeedsPerson", error=REQUEST_CHANGED)]


def _retry_or_release(submission: Submission, event: NotReceived, times: Config) -> list[Command]:
    """Queue an unsent submission again, or unlock its documents, as `on_absence` says."""
    if submission.on_absence == "retry":
        backoff = min(LONGEST_BACKOFF, times.portal_retry * 2 ** min(submission.reads, 10))
        return [Write("Queued", delay=_delay_after(event, backoff), error=event.error)]
    message: str = event.error["message"]
    if not message.endswith(NOTHING_SENT):
        message = NOT_SENT.format(message)
    changes = _set_all(submission, "NotSent", [{**event.error, "message": message}])
    return [Write("NotReceived", changes, delay=_delay_after(event, NO_DELAY), error=event.error)]


def _handle_refusal(submission: Submission, event: RefusalReceived, times: Config) -> list[Command]:
    """Take a refusal of one document, or of the sender, as the outcome.

    Split other submissions, because one document may have caused the refusal of all.
    """
    errors = list(event.errors) or [event.error]
    if len(submission.docs) != 1 and not event.for_all:
        return [_split(submission, event.error)]
    if submission.possibly_received:
        return [_check_refusal(event.error, errors, times)]
    return [Write("Refused", _set_all(submission, "Rejected", errors), error=event.error)]


def _check_refusal(error: Error, errors: list[Error], times: Config) -> Write:
    """Look for an earlier send at the portal before the refusal of a repeated one is believed."""
    error = {**error, "code": REFUSED_AGAIN, "errors": errors}
    return Write("Uncertain", delay=times.portal_retry, error=error, still_sent=True)


def _split(submission: Submission, error: Error, is_absent: bool = False) -> Write:
    """Send the halves of a submission. `is_absent`: they were sent before, and appeared absent."""
    middle = len(submission.docs) // 2
    halves = (submission.docs[:middle], submission.docs[middle:])
    parts = tuple(
        Part(frozenset(doc.id for doc in half), "Queued", possibly_received=is_absent)
        for half in halves
    )
    return Write("Split", error=error, parts=parts)


def _await_outcome(submission: Submission, event: OutcomeUnknown, times: Config) -> list[Command]:
    """Record what a damaged response shows, and look up the outcome later."""
    ids = {doc.number: doc.id for doc in submission.docs}
    sightings = [
        Sighting(ids[number], uuid, None, "damaged answer")
        for number, uuid in event.shown
        if number in ids
    ]
    write = Write("Uncertain", delay=times.portal_retry, error=event.error, still_sent=True)
    return [*_record(sightings), write]


def _apply_receipt(
    submission: Submission, event: SubmissionReceipt, times: Config
) -> list[Command]:
    """Set accepted documents to Submitted, rejected ones to Rejected.

    A receipt that does not name every document leaves the outcome unknown.
    """
    ids = {doc.number: doc.id for doc in submission.docs}
    sightings = [
        Sighting(ids[number], uuid, event.uid, "submit")
        for number, uuid in event.accepted.items()
        if number in ids
    ]
    if any(number not in event.accepted and number not in event.rejected for number in ids):
        write = Write("Uncertain", delay=times.portal_retry, error=UNNAMED, still_sent=True)
    elif submission.possibly_received and event.rejected:
        write = _separate_rejected(submission, event, times)
    else:
        changes = tuple(_change_by_receipt(doc, event) for doc in submission.docs)
        state = "Accepted" if sightings else "Refused"
        write = Write(state, changes, delay=times.portal_poll, uid=event.uid)
    return [*_record(sightings), write]


def _separate_rejected(submission: Submission, event: SubmissionReceipt, times: Config) -> Write:
    """Isolate the rejected documents of a possibly received submission, then check each alone."""
    rejected = [doc for doc in submission.docs if doc.number in event.rejected]
    error = make_reason("Rejected", "The portal rejected the document.")
    if len(submission.docs) == 1:
        return _check_refusal(error, event.rejected[rejected[0].number], times)
    if len(rejected) == len(submission.docs):
        return _split(submission, error)
    accepted = [doc for doc in submission.docs if doc not in rejected]
    changes = tuple(_change_by_receipt(doc, event) for doc in accepted)
    parts = (Part(frozenset(doc.id for doc in rejected), "Queued"),)
    return Write("Accepted", changes, delay=times.portal_poll, uid=event.uid, parts=parts)


def _change_by_receipt(doc: SubmittedDocument, event: SubmissionReceipt) -> Change:
    if doc.number in event.accepted:
        uuid = event.accepted[doc.number]
        return Change(doc.id, "Submitted", uuid=uuid, submitted_at=event.received_at)
    return _refuse(doc, "Rejected", event.rejected[doc.number])


def _abandon_send(submission: Submission, event: Claimed, times: Config) -> list[Command]:
    """Take over from a dead sender. It may have sent the request at any time until now."""
    return [Write("Uncertain", error=ABANDONED, still_sent=True)]


def _wait_for_sender(
    submission: Submission, event: LockUnavailable, times: Config
) -> list[Command]:
    """Wait while the sender is alive, because it may be about to send the first byte."""
    return [ReleaseClaim(times.portal_retry)]


# Unknown outcomes


def _look_up(submission: Submission, event: Claimed, times: Config) -> list[Command]:
    """Use the sightings of the receipt if they are complete. Otherwise the listing decides."""
    sightings = submission.proven("submit")
    if submission.missing_from(sightings):
        return []
    return [_adopt(submission, sightings)]


def _record_shown(submission: Submission, event: SightingsReceived, times: Config) -> list[Command]:
    """Record sightings. Adopt the documents once each of them has a proven one."""
    new = [one for one in event.sightings if one not in submission.sightings]
    proven = replace(submission, sightings=(*submission.sightings, *new)).proven()
    if submission.missing_from(proven):
        return _record(new)
    return [*_record(new), _adopt(submission, proven)]


def _evaluate_listing(submission: Submission, event: ListingEnded, times: Config) -> list[Command]:
    """Count a complete listing that lacks documents as an absence confirmation, if late enough.

    The second confirmation decides about documents without a sighting. Documents with an unproven
    sighting are neither adopted nor absent: they need manual review.
    """
    if not event.complete or not _confirms_absence(submission, event.at, times):
        delay = _next_look(submission, times)
        return [Write("Uncertain", delay=delay, error=submission.refusal)]
    if not submission.absence_confirmations:
        write = Write("Uncertain", delay=times.portal_confirmation_gap, error=submission.refusal)
    elif proven := submission.proven():
        write = _adopt(submission, proven)
    elif unproven := submission.unproven():
        write = _request_review(submission, unproven)
    else:
        write = _resolve_absence(submission)
    return [replace(write, confirms_absence=True)]


def _resolve_absence(submission: Submission) -> Write:
    """Reject, queue or release a submission whose absence is confirmed.

    One that the portal has reported as a duplicate is not released, since the portal has it.
    """
    refusal = submission.refusal
    if refusal and refusal["code"] == REFUSED_AGAIN:
        changes = _set_all(submission, "Rejected", refusal["errors"])
        return Write("Refused", changes, error=refusal)
    if submission.on_absence == "retry":
        return _send_again(submission)
    if refusal:
        return Write("NeedsPerson", error=REPORTED)
    return Write("NotReceived", _set_all(submission, "NotSent", [NEVER_THERE]))


def _send_again(submission: Submission) -> Write:
    """Queue absent work that was promised.

    If it was sent in vain several times, one document may be what the portal, or a gateway before
    it, cannot process. A submission of several documents is split, so that the others continue. One
    document needs manual review a day after its first send.
    """
    first_sent_at, _ = submission.send_times
    if submission.sends < VAIN_SENDS:
        return Write("Queued")
    if len(submission.docs) > 1:
        return _split(submission, SENT_IN_VAIN, is_absent=True)
    if submission.now - first_sent_at > LISTING_DEADLINE:
        return Write("NeedsPerson", error=SENT_IN_VAIN)
    return Write("Queued")


def _confirms_absence(submission: Submission, at: datetime, times: Config) -> bool:
    """Return whether a listing is late enough after the last send and the last confirmation."""
    _, sent_at = submission.send_times
    is_settled = sent_at + times.portal_settle <= at
    return is_settled and (
        submission.absence_confirmed_at is None
        or submission.absence_confirmed_at + times.portal_confirmation_gap <= at
    )


def _retry_listing(
    submission: Submission, event: ListingUnavailable, times: Config
) -> list[Command]:
    """Try again later. After LISTING_DEADLINE without a listing, request manual review."""
    if event.held_for is not None:
        return [ReleaseClaim(event.held_for)]
    _, sent_at = submission.send_times
    state = "NeedsPerson" if submission.now - sent_at > LISTING_DEADLINE else "Uncertain"
    delay = _delay_after(event, _next_look(submission, times))
    return [Write(state, delay=delay, error=submission.refusal or event.error)]


def _next_look(submission: Submission, times: Config) -> timedelta:
    """Return the delay until the next look: doubled each time, and once at the settling time."""
    if submission.absence_confirmations:
        return times.portal_confirmation_gap
    _, sent_at = submission.send_times
    left = sent_at + times.portal_settle - submission.now
    usual = min(LONGEST_LOOK_DELAY, times.portal_retry * 2 ** min(submission.reads, 10))
    return min(usual, left) if left > NO_DELAY else usual


def _request_review(submission: Submission, unproven: set[int]) -> Write:
    """Request manual review. With `on_absence` retry, queue documents without a sighting again."""
    absent = frozenset(doc.id for doc in submission.docs) - unproven
    has_part = absent and submission.on_absence == "retry"
    parts = (Part(absent, "Queued", possibly_received=True),) if has_part else ()
    return Write("NeedsPerson", error=UNPROVEN, parts=parts)


def _adopt(submission: Submission, proven: list[Sighting]) -> Write:
    """Set documents with a proven sighting to Submitted; polling reads their later states.

    The submission is Accepted under the uid that has most of them. Documents under another uid,
    absent ones and unproven ones become parts of their own.
    """
    groups = _group_by_uid(proven)
    changes = tuple(
        Change(submitted_document_id, "Submitted", uuid=one.uuid, submitted_at=one.received_at)
        for _, group in groups
        for submitted_document_id, one in group.items()
    )
    parts = [Part(frozenset(group), "Accepted", uid) for uid, group in groups[1:]]
    missing = submission.missing_from(proven)
    if unproven := missing & submission.unproven():
        parts.append(Part(frozenset(unproven), "NeedsPerson", error=UNPROVEN))
    if absent := missing - unproven:
        parts.append(Part(frozenset(absent), "Queued", possibly_received=True))
    return Write("Accepted", changes, uid=groups[0][0], parts=tuple(parts))


def _group_by_uid(sightings: list[Sighting]) -> list[tuple[str | None, dict[int, Sighting]]]:
    """Return [(submission uid, {document id: sighting})], each document once, largest group first.

    A known uid is preferred to None, because states are read by uid.
    """
    by_uid: dict[str | None, dict[int, Sighting]] = {}
    for one in sightings:
        by_uid.setdefault(one.submission_uid, {}).setdefault(one.submitted_document_id, one)
    left = {one.submitted_document_id for one in sightings}

    def rank(uid: str | None) -> tuple[bool, bool, int]:
        count = len(by_uid[uid].keys() & left)
        return count > 0, uid is not None, count

    groups: list[tuple[str | None, dict[int, Sighting]]] = []
    while left:
        uid = max(by_uid, key=rank)
        group = {key: one for key, one in by_uid.pop(uid).items() if key in left}
        groups.append((uid, group))
        left -= group.keys()
    return groups


# Polling


def _apply_states(submission: Submission, event: StatesReceived, times: Config) -> list[Command]:
    """Write new states. Finish once no document can change any more."""
    parts = tuple(
        Part(frozenset({submitted_document_id}), "Accepted", one.submission_uid)
        for submitted_document_id, one in event.duplicates.items()
    )
    if event.unreadable:
        parts += (Part(event.unreadable, "NeedsPerson", error=UNPROVEN),)
    leaving = event.duplicates.keys() | event.unreadable
    staying = [doc for doc in submission.docs if doc.id not in leaving]
    docs = [apply_changes(doc, event.changes) for doc in staying]
    state, delay, error = "Accepted", times.portal_recheck, None
    if event.later and docs:
        delay, error = _delay_after(event.later, _next_poll(submission, times)), event.later.error
    elif any(doc.status == "Submitted" for doc in docs):
        delay = _next_poll(submission, times)
    elif not any(_can_change(submission, doc) for doc in docs):
        state, delay = "Finished", NO_DELAY
    write = Write(state, event.changes, delay=delay, error=error, parts=parts)
    return [*_record(event.duplicates.values()), write]


def _can_change(submission: Submission, doc: SubmittedDocument) -> bool:
    since = doc.validated_at or submission.last_sent_at
    if doc.status != "Valid" or since is None:
        return False
    return submission.now - since <= states.CANCEL_WINDOW + CANCEL_GRACE


def _retry_states(submission: Submission, event: StatesUnavailable, times: Config) -> list[Command]:
    if event.held_for is not None:
        return [ReleaseClaim(event.held_for)]
    if event.unknown:
        return _handle_unknown(submission, event, times)
    delay = _delay_after(event, _next_poll(submission, times))
    error = _describe_unknown(submission, event) if submission.unknown_since else event.error
    if event.refused:
        since = submission.unknown_since or submission.refused_since or submission.now
        error = {**error, "since": since.isoformat()}
        if _needs_review(submission, since, times):
            return [Write("NeedsPerson", error=error)]
    return [Write("Accepted", delay=delay, error=error)]


def is_overdue(submission: Submission, since: datetime, times: Config) -> bool:
    """Return whether it is too long since a submission, or a document of it, cannot be read."""
    return submission.now - since > UNKNOWN_PERIODS * times.portal_unknown


def _needs_review(submission: Submission, since: datetime, times: Config) -> bool:
    """Return whether a submission without an outcome could not be read for too long."""
    return is_overdue(submission, since, times) and not submission.has_outcome


def _handle_unknown(
    submission: Submission, event: StatesUnavailable, times: Config
) -> list[Command]:
    """Wait for an accepted submission that the portal does not know. It is never sent again.

    Without an outcome it needs manual review in the end. With an outcome it is read until no
    document can change any more, because another client of the portal need not see it.
    """
    since, error = submission.unknown_since or submission.now, _describe_unknown(submission, event)
    usual = _next_poll(submission, times)
    if submission.has_outcome:
        if not any(_can_change(submission, doc) for doc in submission.docs):
            return [Write("Finished")]
        usual = times.portal_recheck
    elif _needs_review(submission, since, times):
        return [Write("NeedsPerson", error=error)]
    return [Write("Accepted", delay=_delay_after(event, usual), error=error)]


def _describe_unknown(submission: Submission, event: StatesUnavailable) -> Error:
    """Return the latest error, with the times that count while the portal lacks a submission."""
    since = submission.unknown_since or submission.now
    searched_at = submission.now if event.searched else submission.searched_at
    message = event.error["message"]
    return {
        **event.error,
        "since": since.isoformat(),
        "searched_at": searched_at and searched_at.isoformat(),
        "code": NOT_FOUND,
        "message": message if event.unknown else STILL_UNKNOWN.format(message),
    }


def _next_poll(submission: Submission, times: Config) -> timedelta:
    """Return the delay until the next poll: each is half as long again as the one before."""
    return min(times.portal_poll_max, times.portal_poll * 1.5 ** min(submission.reads, 40))


# Common parts


def _delay_after(event: RequestFailed, usual: timedelta) -> timedelta:
    return usual if event.wait is None else event.wait


def _record(sightings: Iterable[Sighting]) -> list[Command]:
    recorded = tuple(sightings)
    return [RecordSightings(recorded)] if recorded else []


def _set_all(
    submission: Submission, status: states.SubmittedStatus, errors: list[Error]
) -> tuple[Change, ...]:
    return tuple(_refuse(doc, status, errors) for doc in submission.docs)


def _refuse(doc: SubmittedDocument, status: states.SubmittedStatus, errors: list[Error]) -> Change:
    """Return the change of a document with errors, and the members that they concern."""
    return Change(doc.id, status, errors=locate_errors(errors, doc.document_type))


#: (state, event) -> the function that returns the commands. Other pairs cannot occur.
RULES: dict[
    tuple[states.SubmissionState, type], Callable[[Submission, Any, Config], list[Command]]
] = {
    ("Queued", Claimed): _proceed,
    ("Queued", NotReceived): _postpone,
    ("Queued", RequestChanged): _stop_changed,
    ("Sending", Claimed): _abandon_send,
    ("Sending", LockUnavailable): _wait_for_sender,
    ("Sending", NotReceived): _retry_or_release,
    ("Sending", RefusalReceived): _handle_refusal,
    ("Sending", OutcomeUnknown): _await_outcome,
    ("Sending", SubmissionReceipt): _apply_receipt,
    ("Uncertain", Claimed): _look_up,
    ("Uncertain", LockUnavailable): _wait_for_sender,
    ("Uncertain", SightingsReceived): _record_shown,
    ("Uncertain", ListingEnded): _evaluate_listing,
    ("Uncertain", ListingUnavailable): _retry_listing,
    ("Accepted", Claimed): _proceed,
    ("Accepted", StatesReceived): _apply_states,
    ("Accepted", StatesUnavailable): _retry_states,
}
