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
    Call,
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
    NotTold,
    Part,
    Receipt,
    Refusal,
    Replaced,
    Seen,
    Send,
    Shown,
    Told,
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


def step(call, event, times):
    """(the call as it is once the commands are carried out, the commands). Raises LookupError for what cannot happen."""
    if isinstance(event, Claimed) and call.claims > MOST_CLAIMS:
        commands = [Write("NeedsPerson", error=FRUITLESS)]
    else:
        commands = RULES[call.state, type(event)](call, event, times)
    for command in commands:
        call = after(call, command)
    return call, commands


def after(call, command):
    """The call as it is on disk once a command is carried out. Raises ValueError for a move that no table allows."""
    if isinstance(command, Keep):
        return replace(
            call, seen=(*call.seen, *(one for one in command.seen if one not in call.seen))
        )
    if isinstance(command, Intend):
        return _intended(call)
    return _written(call, command) if isinstance(command, Write) else call


def _intended(call):
    first = call.first_sent_at or call.now
    return replace(
        call,
        state="Sending",
        first_sent_at=first,
        last_sent_at=call.now,
        absent_proofs=0,
        absent_at=None,
    )


def _written(call, command):
    if command.state != call.state and command.state not in states.SUBMISSION_MOVES[call.state]:
        raise ValueError(f"A call that is {call.state} cannot become {command.state}.")
    again = command.state == call.state or (call.state, command.state) == ("Sending", "Queued")
    if command.still_sent:
        call = replace(call, last_sent_at=call.now, absent_proofs=0, absent_at=None)
    gone = frozenset().union(*(part.ids for part in command.parts))
    return replace(
        call,
        state=command.state,
        docs=tuple(_changed(doc, command.changes) for doc in call.docs if doc.id not in gone),
        claims=0,
        looks=call.looks + 1 if again and not command.proof else 0,
        absent_proofs=call.absent_proofs + command.proof,
        absent_at=call.now if command.proof else call.absent_at,
        submission_uid=command.uid or call.submission_uid,
        doubted=call.doubted or (command.proof and command.state == "Queued"),
        refusal=command.error if command.error and command.error["code"] == REFUSED_AGAIN else None,
    )


def without_taken(call: Call, write: Write, taken: set[int]) -> Write:
    """Return the Write without the documents whose uuids other documents have: these are left to a person.

    `taken` are their ids. Nothing of them changes, so that the uuid stays with the document that has it.
    """
    changes = tuple(change for change in write.changes if change.id not in taken)
    parts = tuple(replace(part, ids=part.ids - taken) for part in write.parts if part.ids - taken)
    gone = frozenset().union(*(part.ids for part in write.parts))
    staying = {doc.id for doc in call.docs} - gone
    if staying <= taken:  # the submission itself needs a person, with all that is taken
        return replace(
            write, state="NeedsPerson", changes=changes, parts=parts, delay=NOW, error=UUID_TAKEN
        )
    review = Part(frozenset(taken), "NeedsPerson", error=UUID_TAKEN)
    return replace(write, changes=changes, parts=(*parts, review))


def parted(call, write):
    """The new Calls that a Write makes of parts of a call, as it was before."""
    docs = [_changed(doc, write.changes) for doc in call.docs]
    fresh = replace(call, claims=0, looks=0, absent_proofs=0, absent_at=None, refusal=None)
    return [
        replace(
            fresh,
            state=part.state,
            submission_uid=part.uid,
            doubted=call.doubted or part.doubted,
            docs=tuple(doc for doc in docs if doc.id in part.ids),
            seen=tuple(one for one in call.seen if one.document_id in part.ids),
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


def _admit(call, event, times):
    return [Admit()]


def _connect(call: Call, event: Admitted, times: object) -> list[Connect]:
    """Connect before the intent: it must not grow old while a connection is established."""
    return [Connect()]


def _intend(call: Call, event: Connected, times: object) -> list[Intend]:
    return [Intend()]


def _send(call, event, times):
    return [Send(event.body, event.at)]


def _nothing(call, event, times):
    return []


def _not_tried(call, event, times):
    """Handle a quota, a login or a connection that failed before the intent. Promised work waits for its turn."""
    if call.promise == "pending" and event.held is not None:
        return [GiveBack(event.held)]
    return _unsent(call, event, times)


def _unsent(call, event, times):
    """Who was told that it will be done is kept waiting; who is told that it failed is let go."""
    if call.promise == "pending":
        return [Write("Queued", delay=_pause(event, _patience(call, times)), error=event.error)]
    message = event.error["message"]
    errors = [
        {
            **event.error,
            "message": message if message.endswith(NOTHING_SENT) else NOT_ASKED.format(message),
        }
    ]
    return [Write("NotReceived", _rejected(call, errors), error=event.error)]


def _patience(call, times):
    """A passing failure is waited out, longer each time."""
    return min(MOST_PATIENCE, times.portal_retry * 2 ** min(call.looks, 10))


def _refused(call, event, times):
    """One document's refusal, or the sender's, is the outcome; else one of several may have broken it for the others."""
    errors = list(event.errors) or [event.error]
    if call.doubted and (len(call.docs) == 1 or event.for_all):
        return [_refused_again(event.error, errors, times)]
    if len(call.docs) == 1 or event.for_all:
        return [Write("Refused", _rejected(call, errors), error=event.error)]
    return [_split(call, event.error)]


def _refused_again(error, errors, times):
    """Refused now: the send before may be there all the same, and the portal is asked once more before that is believed."""
    error = {**error, "code": REFUSED_AGAIN, "errors": errors}
    return Write("Uncertain", delay=times.portal_retry, error=error, still_sent=True)


def _split(call, error):
    middle = len(call.docs) // 2
    halves = (call.docs[:middle], call.docs[middle:])
    parts = tuple(Part(frozenset(doc.id for doc in half), "Queued") for half in halves)
    return Write("Split", error=error, parts=parts)


def _unclear(call, event, times):
    ids = {doc.number: doc.id for doc in call.docs}
    shown = [
        Seen(ids[number], uuid, None, "damaged answer")
        for number, uuid in event.shown
        if number in ids
    ]
    return [
        *_kept(shown),
        Write("Uncertain", delay=times.portal_retry, error=event.error, still_sent=True),
    ]


def _received(call, event, times):
    """The receipt: what it took is Submitted, what it refused Rejected. One that does not name every document decides nothing."""
    ids = {doc.number: doc.id for doc in call.docs}
    seen = [
        Seen(ids[number], uuid, event.uid, "submit")
        for number, uuid in event.accepted.items()
        if number in ids
    ]
    if any(number not in event.accepted and number not in event.rejected for number in ids):
        return [
            *_kept(seen),
            Write("Uncertain", delay=times.portal_retry, error=UNNAMED, still_sent=True),
        ]
    if call.doubted and event.rejected:
        return [*_kept(seen), _rejected_again(call, event, times)]
    changes = [_receipt(doc, event) for doc in call.docs]
    state = "Accepted" if seen else "Refused"
    return [*_kept(seen), Write(state, tuple(changes), delay=times.portal_poll, uid=event.uid)]


def _rejected_again(call, event, times):
    """As a refusal of what is sent again: what was rejected goes on by itself until it stands alone."""
    rejected = [doc for doc in call.docs if doc.number in event.rejected]
    error = {"code": "Rejected", "path": "", "message": "The portal rejects it."}
    if len(call.docs) == 1:
        return _refused_again(error, event.rejected[rejected[0].number], times)
    if len(rejected) == len(call.docs):
        return _split(call, error)
    changes = tuple(_receipt(doc, event) for doc in call.docs if doc not in rejected)
    parts = (Part(frozenset(doc.id for doc in rejected), "Queued"),)
    return Write("Accepted", changes, delay=times.portal_poll, uid=event.uid, parts=parts)


def _receipt(doc, event):
    if doc.number in event.accepted:
        return Change(
            doc.id, "Submitted", uuid=event.accepted[doc.number], submitted_at=event.received_at
        )
    return Change(doc.id, "Rejected", errors=event.rejected[doc.number])


def _abandoned(call, event, times):
    """Found Sending, and nobody holds its lock: its sender is dead. When it sent nobody knows, as late as now perhaps."""
    return [Write("Uncertain", error=ABANDONED, still_sent=True)]


def _busy(call, event, times):
    """Its sender lives, and may be held up before the first byte: nothing is presumed before it has gone."""
    return [GiveBack(times.portal_retry)]


# Finding out


def _look(call, event, times):
    """What we saw ourselves is believed before the portal is asked."""
    seen = call.proven("submit")
    return [Look()] if call.lacks(seen) else [_adopted(call, seen)]


def _shown(call, event, times):
    """Adopt the documents once the portal has shown every one of them, proven. That replaces the lost receipt."""
    new = [one for one in event.seen if one not in call.seen]
    seen = replace(call, seen=(*call.seen, *new)).proven()
    return _kept(new) if call.lacks(seen) else [*_kept(new), _adopted(call, seen)]


def _listed(call, event, times):
    """Count a complete listing without all documents as a proof of absence, if it is late enough.

    The second proof decides about documents that were never shown. A document of which a possible copy was shown that
    could not be proven to be ours is neither adopted nor absent: a person has to decide.
    """
    if not event.complete or not _proves(call, event.at, times):
        return [Write("Uncertain", delay=next_look(call, times), error=call.refusal)]
    if not call.absent_proofs:
        return [Write("Uncertain", delay=times.portal_proof_gap, error=call.refusal, proof=True)]
    if seen := call.proven():
        return [replace(_adopted(call, seen), proof=True)]
    if unproven := call.unproven():
        return [_reviewed(call, unproven)]
    if call.refusal:
        return [
            Write(
                "Refused", _rejected(call, call.refusal["errors"]), error=call.refusal, proof=True
            )
        ]
    if call.promise == "pending":
        return [Write("Queued", proof=True)]
    return [Write("NotReceived", _rejected(call, [NEVER_THERE]), proof=True)]


def _proves(call, at, times):
    """Whether a listing asked for at a time proves absence: late enough after the last send, and after the former proof."""
    settled = call.last_sent_at + times.portal_settle <= at
    return settled and (call.absent_at is None or call.absent_at + times.portal_proof_gap <= at)


def _not_listed(call, event, times):
    """After a day without a listing a person is asked."""
    if event.held is not None:
        return [GiveBack(event.held)]
    state = "NeedsPerson" if call.now - call.last_sent_at > GIVE_UP else "Uncertain"
    return [
        Write(state, delay=_pause(event, next_look(call, times)), error=call.refusal or event.error)
    ]


def next_look(call, times):
    """Soon after the send, in case it shows at once; then rarer, and once more as the settling time ends."""
    if call.absent_proofs:
        return times.portal_proof_gap
    ready = call.last_sent_at + times.portal_settle - call.now
    usual = min(LONGEST_LOOK, times.portal_retry * 2 ** min(call.looks, 10))
    return min(usual, ready) if ready > NOW else usual


def _reviewed(call, unproven):
    """Leave the unproven documents to a person. Documents that were never shown are sent again, if that was promised."""
    absent = frozenset(doc.id for doc in call.docs) - unproven
    parts = (Part(absent, "Queued", doubted=True),) if absent and call.promise == "pending" else ()
    return Write("NeedsPerson", error=UNPROVEN, parts=parts, proof=True)


def _adopted(call, seen):
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
    missing = call.lacks(seen)
    if unproven := missing & call.unproven():
        parts.append(Part(frozenset(unproven), "NeedsPerson", error=UNPROVEN))
    if absent := missing - unproven:
        parts.append(Part(frozenset(absent), "Queued", doubted=True))
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


def _ask(call, event, times):
    return [Ask()]


def _told(call, event, times):
    """What is new. Done when every document is final, or Valid and past the time in which it can change."""
    seen = tuple(event.twins.values())
    parts = tuple(
        Part(frozenset({id}), "Accepted", one.submission_uid) for id, one in event.twins.items()
    )
    docs = [_changed(doc, event.changes) for doc in call.docs if doc.id not in event.twins]
    state, delay, error = "Accepted", times.portal_recheck, None
    if event.later:
        delay, error = _pause(event.later, interval(call, times)), event.later.error
    elif any(doc.status == "Submitted" for doc in docs):
        delay = interval(call, times)
    elif not any(_can_change(call, doc) for doc in docs):
        state, delay = "Finished", NOW
    return [*_kept(seen), Write(state, event.changes, delay=delay, error=error, parts=parts)]


def _can_change(call, doc):
    return (
        doc.status == "Valid"
        and doc.validated_at
        and call.now - doc.validated_at <= states.CANCEL_WINDOW + LATE
    )


def _not_told(call, event, times):
    if event.held is not None:
        return [GiveBack(event.held)]
    if event.unknown:
        return _unknown(call, event, times)
    return [Write("Accepted", delay=_pause(event, interval(call, times)), error=event.error)]


def _unknown(call, event, times):
    """Accepted, and then not known: waited for, looked for by number, given to a person in the end. Never sent again."""
    since, searched_at = (
        call.unknown_since or call.now,
        call.now if event.searched else call.searched_at,
    )
    known = {"since": since.isoformat(), "searched_at": searched_at and searched_at.isoformat()}
    error = {**event.error, **known, "code": NOT_FOUND}
    if call.now - since > GIVE_UP_UNKNOWN * times.portal_unknown:
        return [Write("NeedsPerson", error=error)]
    if call.now - (searched_at or since) >= times.portal_unknown:
        return [Find(error)]
    return [Write("Accepted", delay=_pause(event, interval(call, times)), error=error)]


def interval(call, times):
    """Each look waits half as long again as the one before, up to the longest."""
    return min(times.portal_poll_max, times.portal_poll * 1.5 ** min(call.looks, 40))


# What they share


def _pause(event, usual):
    return usual if event.wait is None else event.wait


def _kept(seen):
    return [Keep(tuple(seen))] if seen else []


def _rejected(call, errors):
    return tuple(Change(doc.id, "Rejected", errors=errors) for doc in call.docs)


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
    ("Sending", Receipt): _received,
    ("Uncertain", Claimed): _look,
    ("Uncertain", Busy): _busy,
    ("Uncertain", Shown): _shown,
    ("Uncertain", Listed): _listed,
    ("Uncertain", NotListed): _not_listed,
    ("Accepted", Claimed): _ask,
    ("Accepted", Told): _told,
    ("Accepted", NotTold): _not_told,
}
