"""Finds the documents at the portal that are provably the ones that a company sent.

A listed document with the same number, type, issue time and issuer is a candidate. A candidate is
adopted only if it is proven:

- the portal's copy is the sent document, byte for byte or as JSON; or
- buyer and totals of the listed row agree, and no other company has the TIN. This is used if
  fetching every copy would use too much of the portal's rate limit, or the portal has no copy.

A uuid of another submission's document is never adopted. An unproven candidate is neither adopted
nor absent: it is compared again at each look. docs/submission.md has the rules.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from service.db.connections import Connection
from service.db.statements import sql
from service.documents.ubl import reader
from service.offload import offload
from service.portal.documents import Document
from service.portal.errors import PortalError, Refused, Throttled, Unclear
from service.submission.context import Claim, CompanyContext
from service.submission.following import document_comparison
from service.submission.foreign_uuids import extract_uuids, read_recorded
from service.submission.machine.comparison_rules import is_candidate
from service.submission.machine.types import Error, Sighting, Submission, SubmittedDocument
from service.submission.store import read_contents

log = logging.getLogger(__name__)

MOST_NAMED = 3  # uuids that are looked up for one such rejection
#: Copies fetched for one listing. The portal allows 60 a minute for all companies, and a page of up
#: to 100 rows every 5 seconds: fetching all copies would block the other companies.
MOST_COPIES = 20


@dataclass(slots=True)
class Matches:
    """The sightings of some submissions in a listing, by the id of the submission."""

    proven: dict[int, list[Sighting]] = field(default_factory=dict[int, list[Sighting]])
    unproven: dict[int, list[Sighting]] = field(default_factory=dict[int, list[Sighting]])
    # The copy could not be fetched: compare again later
    undecided: dict[int, PortalError] = field(default_factory=dict[int, PortalError])

    def shown(self, submission_id: int) -> tuple[Sighting, ...]:
        """Return all sightings of a submission, proven and unproven."""
        return (*self.proven.get(submission_id, ()), *self.unproven.get(submission_id, ()))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A listed document with the number, type, issue time and issuer of a sent document."""

    submission_id: int
    submission: Submission
    doc: SubmittedDocument
    there: Document
    is_elsewhere: bool = False  # a document of another company has its uuid

    def sighting(self, via: str) -> Sighting:
        return Sighting(
            self.doc.id, self.there.uuid, self.there.submission_uid, via, self.there.received_at
        )

    def was_seen(self, *sources: str) -> bool:
        """Return whether a sighting from one of the sources is stored."""
        return any(
            (one.submitted_document_id, one.uuid) == (self.doc.id, self.there.uuid)
            and one.via in sources
            for one in self.submission.sightings
        )


async def find_matches(
    context: CompanyContext,
    company_id: int,
    submissions: Mapping[int, Submission],
    listing: Iterable[Document],
    *,
    named: bool = False,
) -> Matches:
    """Find the documents of some submissions, {id: submission}, of one company in a listing.

    `named` means that the listing is the document named in a rejected duplicate, which only its
    bytes can prove. Transient errors of the portal are in `undecided`; no PortalError is raised.
    """
    matches = Matches()
    candidates = _find_candidates(submissions, listing)
    if not candidates:
        return matches
    async with context.database.reading(company_id) as conn:
        candidates = await _check_uuids(conn, company_id, candidates)
        shared = {
            tin: await sql.tin_is_shared(conn, company=company_id, own_tin=tin)
            for tin in {one.submission.tin for one in candidates}
        }
        open_ones = [one for one in candidates if not _add_known(matches, one)]
        ids = {one.submission_id for one in open_ones}
        contents = await read_contents(conn, ids)
    by_row = {tin for tin, is_shared in shared.items() if not (is_shared or named)}
    await _Prover(context, contents, by_row, matches, named).prove(open_ones)
    return matches


async def find_first_send(
    context: CompanyContext,
    claim: Claim,
    submission: Submission,
    doc: SubmittedDocument,
    errors: list[Error],
) -> tuple[Document, Sighting] | None:
    """Return the first send of a document that was rejected as a duplicate, and its sighting.

    The rejection names the uuid of the earlier document. Return None if no named document is proven
    to be the sent one. Raises PortalError, also for a named document that cannot be read if the
    submission was sent before: the portal does not show a document for some seconds. Portal: 14.8
    """
    for uuid in extract_uuids(errors)[:MOST_NAMED]:
        if uuid == doc.uuid:
            continue
        try:
            there = await context.portal.details(submission.tin, uuid)
        except Refused as why:
            if (why.code or why.is_missing) and not submission.possibly_received:
                continue  # not a uuid, or not a document of this issuer
            raise _no_answer(why) from why
        found = await find_matches(
            context, claim.company_id, {claim.id: submission}, [there], named=True
        )
        if claim.id in found.undecided:
            raise found.undecided[claim.id]
        for sighting in found.proven.get(claim.id, ()):
            if sighting.submitted_document_id == doc.id:
                return there, sighting
    return None


# Candidates


def _find_candidates(
    submissions: Mapping[int, Submission], listing: Iterable[Document]
) -> list[_Candidate]:
    by_number: dict[str, list[Document]] = {}
    for there in listing:
        by_number.setdefault(there.number, []).append(there)
    return [
        _Candidate(submission_id, submission, doc, there)
        for submission_id, submission in submissions.items()
        for doc in submission.docs
        for there in by_number.get(doc.number, ())
        if is_candidate(submission.tin, doc, there)
    ]


async def _check_uuids(
    conn: Connection, company_id: int, candidates: list[_Candidate]
) -> list[_Candidate]:
    """Remove documents of the company's other submissions, and mark those of other companies."""
    recorded = await read_recorded(conn, company_id, list({one.there.uuid for one in candidates}))
    left: list[_Candidate] = []
    for one in candidates:
        submission_id = recorded.get(one.there.uuid, one.submission_id)
        if submission_id is None:
            left.append(replace(one, is_elsewhere=True))
        elif submission_id == one.submission_id:
            left.append(one)
    return left


# Outcome of a candidate


def _add_known(matches: Matches, candidate: _Candidate) -> bool:
    """Add a candidate that was proven before. Return false if it was not."""
    if candidate.is_elsewhere or not candidate.was_seen("submit", "search"):
        return False
    _add_proven(matches, candidate)
    return True


def _add_proven(matches: Matches, candidate: _Candidate) -> None:
    matches.proven.setdefault(candidate.submission_id, []).append(candidate.sighting("search"))


def _add_unproven(matches: Matches, candidate: _Candidate, why: str) -> None:
    level = logging.DEBUG if candidate.was_seen("unproven") else logging.WARNING
    submission_id, uuid = candidate.submission_id, candidate.there.uuid
    log.log(level, "submission id=%d uuid=%s is not adopted: %s", submission_id, uuid, why)
    matches.unproven.setdefault(submission_id, []).append(candidate.sighting("unproven"))


def _no_answer(why: Refused) -> Unclear:
    """Return the error for a refusal that decides nothing, such as a gateway's."""
    return Unclear(str(why), errors=why.errors, correlation_id=why.correlation_id)


@dataclass(slots=True)
class _Prover:
    """Proves the candidates of one listing. `by_row` holds the TINs under which a row is evidence.

    Requests for copies wait for the rate limit like further pages of a listing, because otherwise
    the listing would be lost. Requests for a `named` document do not, and one look decides, unless
    its submission was sent before.
    """

    context: CompanyContext
    contents: dict[tuple[int, str], bytes]
    by_row: set[str]
    matches: Matches
    named: bool
    throttled: Throttled | None = None  # the error that ended the fetching of copies

    async def prove(self, candidates: list[_Candidate]) -> None:
        """Decide about each candidate and add it to the matches."""
        is_long = len(candidates) > MOST_COPIES
        for one in candidates:
            is_invalid = one.there.status == "Invalid"
            if (is_long or is_invalid) and await self._is_proven_by_row(one):
                _add_proven(self.matches, one)
            elif not is_invalid:
                await self._prove_by_copy(one)
            elif not one.is_elsewhere:  # Portal: 5.3
                why = "The portal has no copy of an Invalid document."
                _add_unproven(self.matches, one, why)

    async def _prove_by_copy(self, candidate: _Candidate) -> None:
        """Compare the portal's copy. Use the row if the copy cannot be fetched."""
        try:
            copy = await self._fetch_copy(candidate)
        except PortalError as why:
            is_answer = isinstance(why, Refused | Throttled)
            if is_answer and await self._is_proven_by_row(candidate):
                _add_proven(self.matches, candidate)
            elif isinstance(why, Refused):
                self._decide_without_copy(candidate, why)
            else:
                self.matches.undecided[candidate.submission_id] = why
        else:
            content = self._content(candidate)
            is_same = await offload(len(content), document_comparison.is_same, content, copy)
            self._decide(candidate, is_same)

    async def _fetch_copy(self, candidate: _Candidate) -> str:
        """Return the portal's copy. After Throttled, raise it for all further candidates."""
        if self.throttled:
            raise self.throttled
        try:
            there = await self.context.portal.raw(
                candidate.submission.tin, candidate.there.uuid, further=not self.named
            )
            return there.content or ""
        except Throttled as why:
            self.throttled = why
            raise

    def _decide(self, candidate: _Candidate, is_same: bool) -> None:
        if is_same and candidate.is_elsewhere:
            why = "Its uuid is recorded for a document of another company."
            _add_unproven(self.matches, candidate, why)
        elif is_same:
            _add_proven(self.matches, candidate)
        elif not candidate.is_elsewhere:  # another company's document is no copy
            why = "The portal's copy is not the document that was sent."
            _add_unproven(self.matches, candidate, why)

    def _decide_without_copy(self, candidate: _Candidate, why: Refused) -> None:
        """Add a candidate as unproven if its copy is missing, which must be so at two looks."""
        # The portal may have a copy of a Submitted document once it is validated.
        is_missing = why.is_missing and candidate.there.status != "Submitted"
        if is_missing:
            _add_unproven(self.matches, candidate, f"The portal has no copy of it: {why}")
        is_enough = (
            not candidate.submission.possibly_received
            if self.named
            else candidate.was_seen("unproven")
        )
        if not (is_missing and is_enough):
            self.matches.undecided[candidate.submission_id] = _no_answer(why)

    async def _is_proven_by_row(self, candidate: _Candidate) -> bool:
        there, content = candidate.there, self._content(candidate)
        if candidate.is_elsewhere or candidate.submission.tin not in self.by_row:
            return False
        if None in (there.type_code, there.issued_at, there.issuer_tin):
            return False
        sent = await offload(len(content), reader.read, content)
        return not document_comparison.row_differences(sent, there)

    def _content(self, candidate: _Candidate) -> bytes:
        return self.contents[candidate.submission_id, candidate.doc.number]
