"""Tell which documents of the portal are provably the ones that a company sent.

Number, type, issue time and issuer make a listed document a candidate. A candidate is adopted only if it is proven:

- the portal's copy is the document that was sent, byte for byte or as JSON; or
- buyer and totals of the listed row agree, and no other company has the TIN. This is used where fetching every copy
  would cost too much of the portal's quota, and where the portal gives no copy.

A uuid that a document of another submission has is never adopted. An unproven candidate is neither adopted nor absent:
it is compared again at each look, and a person decides if it is still unproven at the second proof of absence.

That there is no copy is believed only after a 404 in the portal's own form at two looks: the first one is recorded as
unproven and leaves its look undecided, the second one decides. Any other refusal only leaves its look undecided.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import asyncpg

from service.db.statements import sql
from service.documents.ubl import document
from service.offload import offload
from service.portal.errors import PortalError, Refused, Throttled, Unclear
from service.portal.responses import Document
from service.submission import document_comparison
from service.submission.context import Claim, SubmissionContext
from service.submission.types import Sighting, Submission, SubmittedDocument

log = logging.getLogger(__name__)

#: The authority's codes for a document of an identity that it has looked at before. Portal: 14.8
DUPLICATE_CODES = {"DV302", "DS302"}
MOST_NAMED = 3  # uuids that are asked about for one such refusal
#: Copies that are fetched for one listing. The portal gives 60 a minute to all companies together,
#: and a page of a listing
#: every 5 seconds, with up to 100 rows: fetching all of them would hold up everybody else's.
MOST_COPIES = 20
ANOTHER = "another document"  # stands for the uuid of a document that may be another company's
_NAMED = re.compile(r"\b(?=[A-Za-z]*[0-9])[0-9A-Za-z]{10,64}\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class Unproven:
    """A possible copy of a document that could not be proven to be the one that was sent."""

    sighting: Sighting
    why: str

    @property
    def uuid(self) -> str:
        return self.sighting.uuid


@dataclass(slots=True)
class Matches:
    """What a listing shows of some submissions, by the id of the submission."""

    proven: dict[int, list[Sighting]] = field(default_factory=dict)
    unproven: dict[int, list[Unproven]] = field(default_factory=dict)
    # A copy could not be fetched now: look again later
    undecided: dict[int, PortalError] = field(default_factory=dict)

    def shown(self, submission_id: int) -> tuple[Sighting, ...]:
        """Return everything that is to be recorded for a submission, in the form that the event Shown takes."""
        unproven = (one.sighting for one in self.unproven.get(submission_id, ()))
        return (*self.proven.get(submission_id, ()), *unproven)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A listed document with the number, type, issue time and issuer of a document of a submission."""

    submission_id: int
    submission: Submission
    doc: SubmittedDocument
    there: Document
    is_elsewhere: bool = False  # a document of another company has its uuid

    def sighting(self, via: str) -> Sighting:
        return Sighting(
            self.doc.id, self.there.uuid, self.there.submission_uid, via, self.there.received_at
        )

    def was_seen(self, *ways: str) -> bool:
        """Return true if this was found out before."""
        return any(
            (one.document_id, one.uuid) == (self.doc.id, self.there.uuid) and one.via in ways
            for one in self.submission.sightings
        )


async def find_matches(
    context: SubmissionContext,
    company_id: int,
    calls: Mapping[int, Submission],
    listing: Iterable[Document],
    *,
    named: bool = False,
) -> Matches:
    """Find the documents of some submissions, {id: Call}, of one company in a listing, and prove them.

    `named`: the listing is what the portal's refusal of a duplicate names, which only its bytes can prove.
    Transient failures of the portal are in `undecided`. Raises nothing of the portal.
    """
    matches = Matches()
    candidates = _candidates(calls, listing)
    if not candidates:
        return matches
    async with context.database.reading(company_id) as conn:
        candidates = await _without_own(conn, company_id, candidates)
        shared = {
            tin: await _is_shared(conn, company_id, tin)
            for tin in {one.submission.tin for one in candidates}
        }
        open_ones = [one for one in candidates if not _is_known(matches, one)]
        bodies = await _bodies(conn, company_id, open_ones)
    contents = await _sent_contents(bodies, open_ones)
    by_row = {tin for tin, is_shared in shared.items() if not (is_shared or named)}
    await _Prover(context, contents, by_row, matches, named=named).prove(open_ones)
    return matches


async def first_send(
    context: SubmissionContext,
    claim: Claim,
    submission: Submission,
    doc: SubmittedDocument,
    errors: list[dict],
) -> tuple[Document, Sighting] | None:
    """Return the document, and its Seen, of which a refused one was the second send; None if there is none.

    The portal's refusal names the uuid of the earlier document. It is ours only if the portal's copy of it is the document
    that was sent. Raises PortalError. Portal: 14.8
    """
    for uuid in _named(errors):
        if uuid != doc.uuid:
            try:
                there = await context.portal.details(submission.tin, uuid)
            except Refused as why:
                if why.code or why.is_missing:
                    continue  # not a uuid, or not a document of this issuer
                raise _no_answer(why) from why
            found = await find_matches(
                context, claim.company_id, {claim.id: submission}, [there], named=True
            )
            if claim.id in found.undecided:
                raise found.undecided[claim.id]
            if seen := [one for one in found.proven.get(claim.id, ()) if one.document_id == doc.id]:
                return there, seen[0]
    return None


async def hide_foreign(
    context: SubmissionContext, company_id: int, tin: str, errors: list[dict]
) -> list[dict]:
    """Return the errors without the uuids of documents that may be another company's."""
    uuids = _named(errors, None)
    if not uuids:
        return errors
    async with context.database.reading(company_id) as conn:
        rows = await sql.uuids_recorded(conn, company_id=company_id, uuids=uuids)
        is_shared = await _is_shared(conn, company_id, tin)
    own = {row["uuid"] for row in rows if row["own_submission"] is not None}
    recorded = {row["uuid"] for row in rows}
    foreign = [uuid for uuid in uuids if uuid not in own and (is_shared or uuid in recorded)]
    return [{**error, "message": _without(error["message"], foreign)} for error in errors]


def _without(message: str, uuids: list[str]) -> str:
    for uuid in uuids:
        message = message.replace(uuid, ANOTHER)
    return message


def _named(errors: list[dict], most: int | None = MOST_NAMED) -> list[str]:
    """Return the uuids that refusals as duplicates name."""
    texts = [error["message"] for error in errors if error["code"] in DUPLICATE_CODES]
    return list(dict.fromkeys(_NAMED.findall(" ".join(texts))))[:most]


# Candidates


def _candidates(calls: Mapping[int, Submission], listing: Iterable[Document]) -> list[_Candidate]:
    by_number: dict[str, list[Document]] = {}
    for there in listing:
        by_number.setdefault(there.number, []).append(there)
    return [
        _Candidate(submission_id, submission, doc, there)
        for submission_id, submission in calls.items()
        for doc in submission.docs
        for there in by_number.get(doc.number, ())
        if is_candidate(submission, doc, there)
    ]


def is_candidate(submission: Submission, doc: SubmittedDocument, there: Document) -> bool:
    """Return whether number, type, issue time and issuer agree. A member that the portal does not show agrees."""
    return (
        there.number == doc.number
        and there.type_code in (None, doc.document_type)
        and there.issued_at in (None, doc.issued_at)
        and there.issuer_tin in (None, submission.tin)
    )


async def _without_own(
    conn: asyncpg.Connection, company_id: int, candidates: list[_Candidate]
) -> list[_Candidate]:
    """Leave out documents of other submissions of the company, and mark those that other companies have."""
    uuids = list({one.there.uuid for one in candidates})
    rows = await sql.uuids_recorded(conn, company_id=company_id, uuids=uuids)
    recorded = {row["uuid"]: row["own_submission"] for row in rows}
    left = []
    for one in candidates:
        submission_id = recorded.get(one.there.uuid, one.submission_id)
        if submission_id is None:
            left.append(replace(one, is_elsewhere=True))
        elif submission_id == one.submission_id:
            left.append(one)
    return left


async def _is_shared(conn: asyncpg.Connection, company_id: int, tin: str) -> bool:
    return await sql.tin_is_shared(conn, company_id=company_id, tin=tin)


async def _bodies(
    conn: asyncpg.Connection, company_id: int, candidates: list[_Candidate]
) -> dict[int, bytes]:
    """Return {submission: the bytes that were sent}."""
    ids = sorted({one.submission_id for one in candidates})
    rows = await sql.submission_bodies(conn, company_id=company_id, ids=ids) if ids else []
    return {row["id"]: row["body"] for row in rows}


async def _sent_contents(
    bodies: dict[int, bytes], candidates: list[_Candidate]
) -> dict[tuple[int, str], bytes]:
    """Return {(submission, number): the bytes of the document that was sent}."""
    wanted = {(one.submission_id, one.doc.number) for one in candidates}
    sent = {id: await offload(len(body), document.contents, body) for id, body in bodies.items()}
    return {(id, number): sent[id][number] for id, number in wanted}


# Proofs


def _is_known(matches: Matches, candidate: _Candidate) -> bool:
    """Return whether a candidate was proven before, and add it to the proven ones then. The portal is not asked again."""
    if candidate.is_elsewhere or not candidate.was_seen("submit", "search"):
        return False
    _add_proven(matches, candidate)
    return True


def _add_proven(matches: Matches, candidate: _Candidate) -> None:
    matches.proven.setdefault(candidate.submission_id, []).append(candidate.sighting("search"))


def _add_unproven(matches: Matches, candidate: _Candidate, why: str) -> None:
    level = logging.DEBUG if candidate.was_seen("unproven") else logging.WARNING
    log.log(
        level,
        "submission id=%d uuid=%s is not adopted: %s",
        candidate.submission_id,
        candidate.there.uuid,
        why,
    )
    matches.unproven.setdefault(candidate.submission_id, []).append(
        Unproven(candidate.sighting("unproven"), why)
    )


def _no_answer(why: Refused) -> Unclear:
    """Return what a refusal means that does not answer the question: a gateway's, for example."""
    return Unclear(str(why), errors=why.errors, correlation_id=why.correlation_id)


class _Prover:
    """Proves the candidates of one listing. `by_row` holds the TINs under which a row's facts are a proof.

    It waits for the quota as a further page of a listing does, since the listing so far would be lost; but not for a
    `named` document, on which no listing depends. About a named one a single look decides.
    """

    def __init__(
        self,
        context: SubmissionContext,
        contents: dict[tuple[int, str], bytes],
        by_row: set[str],
        matches: Matches,
        *,
        named: bool,
    ) -> None:
        self._context = context
        self._contents = contents
        self._by_row = by_row
        self._matches = matches
        self._named = named
        # Once the portal, or our own count, gives no more copies
        self._throttled: Throttled | None = None

    async def prove(self, candidates: list[_Candidate]) -> None:
        is_long = len(candidates) > MOST_COPIES
        for one in candidates:
            if one.there.status == "Invalid":  # the portal gives no copy of it. Portal: 5.3
                await self._prove_invalid(one)
            elif is_long and await self._is_proven_by_row(one):
                _add_proven(self._matches, one)
            else:
                await self._prove_by_copy(one)

    async def _prove_invalid(self, candidate: _Candidate) -> None:
        if candidate.is_elsewhere:
            return
        if await self._is_proven_by_row(candidate):
            _add_proven(self._matches, candidate)
        else:
            _add_unproven(
                self._matches, candidate, "The portal gives no copy of an Invalid document."
            )

    async def _prove_by_copy(self, candidate: _Candidate) -> None:
        """Compare the portal's copy. Without one the row decides, if it can."""
        try:
            copy = await self._copy(candidate)
        except Refused as why:
            await self._decide_without_copy(candidate, why)
        except PortalError as why:
            if isinstance(why, Throttled) and await self._is_proven_by_row(candidate):
                _add_proven(self._matches, candidate)
            else:
                self._matches.undecided[candidate.submission_id] = why
        else:
            content = self._content(candidate)
            is_same = await offload(len(content), document_comparison.is_same, content, copy)
            self._decide(candidate, is_same)

    async def _copy(self, candidate: _Candidate) -> str:
        """Return the text that the portal has. Once it gives no more for now, that is not tried again."""
        if self._throttled:
            raise self._throttled
        try:
            there = await self._context.portal.raw(
                candidate.submission.tin, candidate.there.uuid, further=not self._named
            )
            return there.content or ""
        except Throttled as why:
            await self._context.apply_throttle(why, "raw")
            self._throttled = why
            raise

    def _decide(self, candidate: _Candidate, is_same: bool) -> None:
        if is_same and candidate.is_elsewhere:
            _add_unproven(
                self._matches, candidate, "Its uuid is recorded for a document of another company."
            )
        elif is_same:
            _add_proven(self._matches, candidate)
        elif not candidate.is_elsewhere:  # another company's document is not a copy of ours
            _add_unproven(
                self._matches, candidate, "The portal's copy is not the document that was sent."
            )

    async def _decide_without_copy(self, candidate: _Candidate, why: Refused) -> None:
        """Let the row decide, if it is a proof. Else the portal must say at two looks that it has no copy."""
        if await self._is_proven_by_row(candidate):
            _add_proven(self._matches, candidate)
            return
        # Of a Submitted document the portal may give a copy once it has validated it.
        is_missing = why.is_missing and candidate.there.status != "Submitted"
        if is_missing:
            _add_unproven(self._matches, candidate, f"The portal gives no copy of it: {why}")
        if not (is_missing and (self._named or candidate.was_seen("unproven"))):
            self._matches.undecided[candidate.submission_id] = _no_answer(why)

    async def _is_proven_by_row(self, candidate: _Candidate) -> bool:
        there, content = candidate.there, self._content(candidate)
        if candidate.is_elsewhere or candidate.submission.tin not in self._by_row:
            return False
        if None in (there.type_code, there.issued_at, there.issuer_tin):
            return False
        sent = await offload(len(content), document_comparison.read_sent, content)
        return not document_comparison.row_differences(sent, there)

    def _content(self, candidate: _Candidate) -> bytes:
        return self._contents[candidate.submission_id, candidate.doc.number]
