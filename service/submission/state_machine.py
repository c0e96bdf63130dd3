"""What a submission does next, and why: `step(call, event, times) -> (call, commands)`. No I/O, no clock, no randomness.

A call to the portal is on disk as it is here, a Call. What happens to it is an event; what is to be done about it are
commands, in their order, each of which may be the last that a process lives to carry out. Four promises stand on that:

- No byte goes out before the intent is on disk, and a Sending call that is found was perhaps received.
- An unclear answer is unknown, never failed: the documents stay locked until the truth is found.
- Absence re-opens sending only when proved twice, after the settling time, by complete listings. What is refused when it
  is sent again may be there from the first time: that is asked once more.
- What the caller was told decides what proved absence means: promised work waits on, a failure lets the documents go.

`times` has the timedeltas of service.config: portal_settle, portal_proof_gap, portal_poll, portal_unknown and others.
"""

from dataclasses import replace
from datetime import timedelta

from service.documents import states
from service.submission.types import (
    NOW,
    Admit,
    Admitted,
    Ask,
    Busy,
    Change,
    Claimed,
    Connect,
    Connected,
    Find,
    GiveBack,
    Intend,
    Intended,
    Keep,
    Listed,
    Look,
    NotListed,
    NotReceived,
    Part,
    ReceiptReceived,
    Refusal,
    Replaced,
    Send,
    Shown,
    Sighting,
    StatesReceived,
    StatesUnavailable,
    Submission,
    Unknown,
    Write,
)

#: Claims without a result, after which a submission is taken for the cause of crashes and needs a
#: person. A process that is
#: killed for another reason has some submission in hand, too, and perhaps one that was in hand at
#: the crash before.
MOST_CLAIMS = 10
MOST_PATIENCE = timedelta(minutes=5)  # with a passing failure
LONGEST_LOOK = timedelta(seconds=60)  # between looks for what is Uncertain
GIVE_UP = timedelta(hours=24)  # of listings that cannot be had
GIVE_UP_UNKNOWN = 24  # times `portal_unknown`, of being told that an accepted call is unknown
NOT_FOUND, REFUSED_AGAIN = "NotFound", "RefusedAgain"
LATE = timedelta(hours=2)  # after the 72 hours, for what happened in their last minutes

UNKNOWN = {"code": "OutcomeUnknown", "path": "", "message": "The portal gave no clear answer."}
ABANDONED = {**UNKNOWN, "message": "The process that sent it gave no result."}
UNNAMED = {**UNKNOWN, "message": "The portal's receipt does not name every document."}
FRUITLESS = {
    "code": "NeedsPerson",
    "path": "",
    "message": "It was tried several times and gave no result.",
}
NEVER_THERE = {
    "code": "NotReceived",
    "path": "",
    "message": "The portal never had the document; it may be submitted again.",
}
UNPROVEN = {
    "code": "NotProven",
    "path": "",
    "message": "The portal has a document with this number and issue time that could not be proven to be the one that was sent.",
}
UUID_TAKEN = {
    "code": "UuidTaken",
    "path": "",
    "message": "The portal named an identifier for this document that cannot be recorded for it.",
}
NOTHING_SENT = "Nothing was sent."
NOT_ASKED = "The portal could not be asked: {} " + NOTHING_SENT


# The steps


def step(submission, event, times):
    """(the call as it is once the commands are carried out, the commands). Raises LookupError for what cannot happen."""
    if isinstance(event, Claimed) and submission.claims > MOST_CLAIMS:
        commands = [Write("NeedsPerson", error=FRUITLESS)]
    else:
        commands = RULES[submission.state, type(event)](submission, event, times)
    for command in commands:
        submission = after(submission, command)
    return submission, commands


def after(submission, command):
    """The call as it is on disk once a command is carried out. Raises ValueError for a move that no table allows."""
    if isinstance(command, Keep):
        return replace(
            submission,
            sightings=(
                *submission.sightings,
                *(one for one in command.sightings if one not in submission.sightings),
            ),
        )
    if isinstance(command, Intend):
        return _intended(submission)
    return _written(submission, command) if isinstance(command, Write) else submission


def _intended(submission):
    first = submission.first_sent_at or submission.now
    return replace(
        submission,
        state="Sending",
        first_sent_at=first,
        last_sent_at=submission.now,
        absence_confirmations=0,
        absence_confirmed_at=None,
    )


def _written(submission, command):
    if (
        command.state != submission.state
        and command.state not in states.SUBMISSION_MOVES[submission.state]
    ):
        raise ValueError(f"A submission that is {submission.state} cannot become {command.state}.")
    again = command.state == submission.state or (submission.state, command.state) == (
        "Sending",
        "Queued",
    )
    if command.still_sent:
        submission = replace(
            submission,
            last_sent_at=submission.now,
            absence_confirmations=0,
            absence_confirmed_at=None,
        )
    gone = frozenset().union(*(part.ids for part in command.parts))
    return replace(
        submission,
        state=command.state,
        docs=tuple(_changed(doc, command.changes) for doc in submission.docs if doc.id not in gone),
        claims=0,
        looks=submission.looks + 1 if again and not command.proof else 0,
        absence_confirmations=submission.absence_confirmations + command.proof,
        absence_confirmed_at=submission.now if command.proof else submission.absence_confirmed_at,
        submission_uid=command.uid or submission.submission_uid,
        possibly_received=submission.possibly_received
        or (command.proof and command.state == "Queued"),
        refusal=command.error if command.error and command.error["code"] == REFUSED_AGAIN else None,
    )


def without_taken(submission: Submission, write: Write, taken: set[int]) -> Write:
    """Return the Write without the documents whose uuids other documents have: these are left to a person.

    `taken` are their ids. Nothing of them changes, so that the uuid stays with the document that has it.
    """
    changes = tuple(change for change in write.changes if change.id not in taken)
    parts = tuple(replace(part, ids=part.ids - taken) for part in write.parts if part.ids - taken)
    gone = frozenset().union(*(part.ids for part in write.parts))
    staying = {doc.id for doc in submission.docs} - gone
    if staying <= taken:  # the submission itself needs a person, with all that is taken
        return replace(
            write, state="NeedsPerson", changes=changes, parts=parts, delay=NOW, error=UUID_TAKEN
        )
    review = Part(frozenset(taken), "NeedsPerson", error=UUID_TAKEN)
    return replace(write, changes=changes, parts=(*parts, review))


def parted(submission, write):
    """The new Calls that a Write makes of parts of a call, as it was before."""
    docs = [_changed(doc, write.changes) for doc in submission.docs]
    fresh = replace(
        submission,
        claims=0,
        looks=0,
        absence_confirmations=0,
        absence_confirmed_at=None,
        refusal=None,
    )
    return [
        replace(
            fresh,
            state=part.state,
            submission_uid=part.uid,
            possibly_received=submission.possibly_received or part.possibly_received,
            docs=tuple(doc for doc in docs if doc.id in part.ids),
            sightings=tuple(one for one in submission.sightings if one.document_id in part.ids),
        )
        for part in write.parts
    ]


def _changed(doc, changes):
    """The document with what is new of it, if it stands where that can come from."""
    for change in changes:
        if change.id == doc.id and change.status in states.DOCUMENT_MOVES[doc.status]:
            new = {
                name: getattr(change, name) or getattr(doc, name)
                for name in ("uuid", "validated_at")
            }
            return replace(doc, status=change.status, **new)
    return doc


# Sending


def _admit(submission, event, times):
    return [Admit()]


def _connect(submission: Submission, event: Admitted, times: object) -> list[Connect]:
    """Connect before the intent: it must not grow old while a connection is established."""
    return [Connect()]


def _intend(submission: Submission, event: Connected, times: object) -> list[Intend]:
    return [Intend()]


def _send(submission, event, times):
    return [Send(event.body, event.at)]


def _nothing(submission, event, times):
    return []


def _not_tried(submission, event, times):
    """Handle a quota, a login or a connection that failed before the intent. Promised work waits for its turn."""
    if submission.on_absence == "retry" and event.held is not None:
        return [GiveBack(event.held)]
    return _unsent(submission, event, times)


def _unsent(submission, event, times):
    """Who was told that it will be done is kept waiting; who is told that it failed is let go."""
    if submission.on_absence == "retry":
        return [
            Write("Queued", delay=_pause(event, _patience(submission, times)), error=event.error)
        ]
    message = event.error["message"]
    errors = [
        {
            **event.error,
            "message": message if message.endswith(NOTHING_SENT) else NOT_ASKED.format(message),
        }
    ]
    return [Write("NotReceived", _rejected(submission, errors), error=event.error)]


def _patience(submission, times):
    """A passing failure is waited out, longer each time."""
    return min(MOST_PATIENCE, times.portal_retry * 2 ** min(submission.looks, 10))


def _refused(submission, event, times):
    """One document's refusal, or the sender's, is the outcome; else one of several may have broken it for the others."""
    errors = list(event.errors) or [event.error]
    if submission.possibly_received and (len(submission.docs) == 1 or event.for_all):
        return [_refused_again(event.error, errors, times)]
    if len(submission.docs) == 1 or event.for_all:
        return [Write("Refused", _rejected(submission, errors), error=event.error)]
    return [_split(submission, event.error)]


def _refused_again(error, errors, times):
    """Refused now: the send before may be there all the same, and the portal is asked once more before that is believed."""
    error = {**error, "code": REFUSED_AGAIN, "errors": errors}
    return Write("Uncertain", delay=times.portal_retry, error=error, still_sent=True)


def _split(submission, error):
    middle = len(submission.docs) // 2
    halves = (submission.docs[:middle], submission.docs[middle:])
    parts = tuple(Part(frozenset(doc.id for doc in half), "Queued") for half in halves)
    return Write("Split", error=error, parts=parts)


def _unclear(submission, event, times):
    ids = {doc.number: doc.id for doc in submission.docs}
    shown = [
        Sighting(ids[number], uuid, None, "damaged answer")
        for number, uuid in event.shown
        if number in ids
    ]
    return [
        *_kept(shown),
        Write("Uncertain", delay=times.portal_retry, error=event.error, still_sent=True),
    ]


def _received(submission, event, times):
    """The receipt: what it took is Submitted, what it refused Rejected. One that does not name every document decides nothing."""
    ids = {doc.number: doc.id for doc in submission.docs}
    seen = [
        Sighting(ids[number], uuid, event.uid, "submit")
        for number, uuid in event.accepted.items()
        if number in ids
    ]
    if any(number not in event.accepted and number not in event.rejected for number in ids):
        return [
            *_kept(seen),
            Write("Uncertain", delay=times.portal_retry, error=UNNAMED, still_sent=True),
        ]
    if submission.possibly_received and event.rejected:
        return [*_kept(seen), _rejected_again(submission, event, times)]
    changes = [_receipt(doc, event) for doc in submission.docs]
    state = "Accepted" if seen else "Refused"
    return [*_kept(seen), Write(state, tuple(changes), delay=times.portal_poll, uid=event.uid)]


def _rejected_again(submission, event, times):
    """As a refusal of what is sent again: what was rejected goes on by itself until it stands alone."""
    rejected = [doc for doc in submission.docs if doc.number in event.rejected]
    error = {"code": "Rejected", "path": "", "message": "The portal rejects it."}
    if len(submission.docs) == 1:
        return _refused_again(error, event.rejected[rejected[0].number], times)
    if len(rejected) == len(submission.docs):
        return _split(submission, error)
    changes = tuple(_receipt(doc, event) for doc in submission.docs if doc not in rejected)
    parts = (Part(frozenset(doc.id for doc in rejected), "Queued"),)
    return Write("Accepted", changes, delay=times.portal_poll, uid=event.uid, parts=parts)


def _receipt(doc, event):
    if doc.number in event.accepted:
        return Change(
            doc.id, "Submitted", uuid=event.accepted[doc.number], submitted_at=event.received_at
        )
    return Change(doc.id, "Rejected", errors=event.rejected[doc.number])


def _abandoned(submission, event, times):
    """Found Sending, and nobody holds its lock: its sender is dead. When it sent nobody knows, as late as now perhaps."""
    return [Write("Uncertain", error=ABANDONED, still_sent=True)]


def _busy(submission, event, times):
    """Its sender lives, and may be held up before the first byte: nothing is presumed before it has gone."""
    return [GiveBack(times.portal_retry)]


# Finding out


def _look(submission, event, times):
    """What we saw ourselves is believed before the portal is asked."""
    seen = submission.proven("submit")
    return [Look()] if submission.lacks(seen) else [_adopted(submission, seen)]


def _shown(submission, event, times):
    """Adopt the documents once the portal has shown every one of them, proven. That replaces the lost receipt."""
    new = [one for one in event.sightings if one not in submission.sightings]
    seen = replace(submission, sightings=(*submission.sightings, *new)).proven()
    return _kept(new) if submission.lacks(seen) else [*_kept(new), _adopted(submission, seen)]


def _listed(submission, event, times):
    """Count a complete listing without all documents as a proof of absence, if it is late enough.

    The second proof decides about documents that were never shown. A document of which a possible copy was shown that
    could not be proven to be ours is neither adopted nor absent: a person has to decide.
    """
    if not event.complete or not _proves(submission, event.at, times):
        return [Write("Uncertain", delay=next_look(submission, times), error=submission.refusal)]
    if not submission.absence_confirmations:
        return [
            Write("Uncertain", delay=times.portal_proof_gap, error=submission.refusal, proof=True)
        ]
    if seen := submission.proven():
        return [replace(_adopted(submission, seen), proof=True)]
    if unproven := submission.unproven():
        return [_reviewed(submission, unproven)]
    if submission.refusal:
        return [
            Write(
                "Refused",
                _rejected(submission, submission.refusal["errors"]),
                error=submission.refusal,
                proof=True,
            )
        ]
    if submission.on_absence == "retry":
        return [Write("Queued", proof=True)]
    return [Write("NotReceived", _rejected(submission, [NEVER_THERE]), proof=True)]


def _proves(submission, at, times):
    """Whether a listing asked for at a time proves absence: late enough after the last send, and after the former proof."""
    settled = submission.last_sent_at + times.portal_settle <= at
    return settled and (
        submission.absence_confirmed_at is None
        or submission.absence_confirmed_at + times.portal_proof_gap <= at
    )


def _not_listed(submission, event, times):
    """After a day without a listing a person is asked."""
    if event.held is not None:
        return [GiveBack(event.held)]
    state = "NeedsPerson" if submission.now - submission.last_sent_at > GIVE_UP else "Uncertain"
    return [
        Write(
            state,
            delay=_pause(event, next_look(submission, times)),
            error=submission.refusal or event.error,
        )
    ]


def next_look(submission, times):
    """Soon after the send, in case it shows at once; then rarer, and once more as the settling time ends."""
    if submission.absence_confirmations:
        return times.portal_proof_gap
    ready = submission.last_sent_at + times.portal_settle - submission.now
    usual = min(LONGEST_LOOK, times.portal_retry * 2 ** min(submission.looks, 10))
    return min(usual, ready) if ready > NOW else usual


def _reviewed(submission, unproven):
    """Leave the unproven documents to a person. Documents that were never shown are sent again, if that was promised."""
    absent = frozenset(doc.id for doc in submission.docs) - unproven
    parts = (
        (Part(absent, "Queued", possibly_received=True),)
        if absent and submission.on_absence == "retry"
        else ()
    )
    return Write("NeedsPerson", error=UNPROVEN, parts=parts, proof=True)


def _adopted(submission, seen):
    """Record the proven documents as Submitted; polling brings their later states.

    The call is Accepted under the uid that has most of them. Documents under another uid, absent ones and unproven ones
    become parts of their own.
    """
    groups = _by_uid(seen)
    changes = tuple(
        Change(id, "Submitted", uuid=one.uuid, submitted_at=one.received_at)
        for _, group in groups
        for id, one in group.items()
    )
    parts = [Part(frozenset(group), "Accepted", uid) for uid, group in groups[1:]]
    missing = submission.lacks(seen)
    if unproven := missing & submission.unproven():
        parts.append(Part(frozenset(unproven), "NeedsPerson", error=UNPROVEN))
    if absent := missing - unproven:
        parts.append(Part(frozenset(absent), "Queued", possibly_received=True))
    return Write("Accepted", changes, uid=groups[0][0], parts=tuple(parts))


def _by_uid(seen):
    """[(uid of the portal, {document id: Seen})]: each document once, under the uid that has the most of them.

    A row without a uid tells least: what is asked later is asked by uid.
    """
    uids, left = {}, {one.document_id for one in seen}
    for one in seen:
        uids.setdefault(one.submission_uid, {}).setdefault(one.document_id, one)
    groups = []
    while left:
        uid = max(
            uids,
            key=lambda uid: (
                bool(uids[uid].keys() & left),
                uid is not None,
                len(uids[uid].keys() & left),
            ),
        )
        groups.append((uid, {id: one for id, one in uids.pop(uid).items() if id in left}))
        left -= groups[-1][1].keys()
    return groups


# Asking how it stands


def _ask(submission, event, times):
    return [Ask()]


def _told(submission, event, times):
    """What is new. Done when every document is final, or Valid and past the time in which it can change."""
    seen = tuple(event.duplicates.values())
    parts = tuple(
        Part(frozenset({id}), "Accepted", one.submission_uid)
        for id, one in event.duplicates.items()
    )
    docs = [
        _changed(doc, event.changes) for doc in submission.docs if doc.id not in event.duplicates
    ]
    state, delay, error = "Accepted", times.portal_recheck, None
    if event.later:
        delay, error = _pause(event.later, interval(submission, times)), event.later.error
    elif any(doc.status == "Submitted" for doc in docs):
        delay = interval(submission, times)
    elif not any(_can_change(submission, doc) for doc in docs):
        state, delay = "Finished", NOW
    return [*_kept(seen), Write(state, event.changes, delay=delay, error=error, parts=parts)]


def _can_change(submission, doc):
    return (
        doc.status == "Valid"
        and doc.validated_at
        and submission.now - doc.validated_at <= states.CANCEL_WINDOW + LATE
    )


def _not_told(submission, event, times):
    if event.held is not None:
        return [GiveBack(event.held)]
    if event.unknown:
        return _unknown(submission, event, times)
    return [Write("Accepted", delay=_pause(event, interval(submission, times)), error=event.error)]


def _unknown(submission, event, times):
    """Accepted, and then not known: waited for, looked for by number, given to a person in the end. Never sent again."""
    since, searched_at = (
        submission.unknown_since or submission.now,
        submission.now if event.searched else submission.searched_at,
    )
    known = {"since": since.isoformat(), "searched_at": searched_at and searched_at.isoformat()}
    error = {**event.error, **known, "code": NOT_FOUND}
    if submission.now - since > GIVE_UP_UNKNOWN * times.portal_unknown:
        return [Write("NeedsPerson", error=error)]
    if submission.now - (searched_at or since) >= times.portal_unknown:
        return [Find(error)]
    return [Write("Accepted", delay=_pause(event, interval(submission, times)), error=error)]


def interval(submission, times):
    """Each look waits half as long again as the one before, up to the longest."""
    return min(times.portal_poll_max, times.portal_poll * 1.5 ** min(submission.looks, 40))


# What they share


def _pause(event, usual):
    return usual if event.wait is None else event.wait


def _kept(seen):
    return [Keep(tuple(seen))] if seen else []


def _rejected(submission, errors):
    return tuple(Change(doc.id, "Rejected", errors=errors) for doc in submission.docs)


#: (state, what happens) -> what is to be done. What is not here cannot happen.
RULES = {
    ("Queued", Claimed): _admit,
    ("Queued", Admitted): _connect,
    ("Queued", Connected): _intend,
    ("Queued", NotReceived): _not_tried,
    ("Queued", Replaced): _nothing,
    ("Sending", Claimed): _abandoned,
    ("Sending", Busy): _busy,
    ("Sending", Intended): _send,
    ("Sending", NotReceived): _unsent,
    ("Sending", Refusal): _refused,
    ("Sending", Unknown): _unclear,
    ("Sending", ReceiptReceived): _received,
    ("Uncertain", Claimed): _look,
    ("Uncertain", Busy): _busy,
    ("Uncertain", Shown): _shown,
    ("Uncertain", Listed): _listed,
    ("Uncertain", NotListed): _not_listed,
    ("Accepted", Claimed): _ask,
    ("Accepted", StatesReceived): _told,
    ("Accepted", StatesUnavailable): _not_told,
}
