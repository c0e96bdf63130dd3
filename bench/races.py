#!/usr/bin/env python3
"""Send fifty concurrent requests of which one may win, to two processes on one database.

    .venv/bin/python bench/races.py [--rounds N] [--ways N] [--seed S] [--only NAME]

A round creates the contested record, sends all requests in random order over open connections, half
of them to each process, and then compares the responses with the service and the sandbox's ledger.
Exits with 1 if a round had two winners, no winner where one is required, or responses that
contradict the final state.
"""

import argparse
import asyncio
import itertools
import json
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from benchmark import print_table, run, start_service, summary_of
from harness.sandbox import Administration
from http_client import Connection, Response, make_request
from requests import BUYER, LINE

VARIABLES = {
    "SANDBOX_PROCESSING_SECONDS": "0",
    "PORTAL_POLL_SECONDS": "0.05",
    "PORTAL_POLL_MAX_SECONDS": "0.2",
    "LOG_LEVEL": "WARNING",
}
SETTLING_SECONDS = 60
HEAD_STARTS = (0, 0, 0.003, 0.01, 0.03)  # seconds
CANCEL, NOTES = "cancel-latest-invoice-submitted", "adjustment-note"


@dataclass(frozen=True, slots=True)
class Request:
    """A kind of request of a race; `body` is JSON text."""

    kind: str
    method: str
    path: str
    body: str | None = None


#: (kind of the request, response).
Answers = list[tuple[str, Response]]


@dataclass(slots=True)
class Race:
    """The results of the rounds of one race."""

    rounds: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def add_round(self, outcome: str, answers: Answers, *violations: object) -> None:
        """Record a round. A false value among the violations is a rule that held."""
        self.rounds += 1
        self.outcomes[outcome] += 1
        self.statuses.update(f"{kind} {response.status}" for kind, response in answers)
        self.violations += [f"round {self.rounds}: {rule}" for rule in violations if rule]


class Track:
    """Two processes with a connection for each request of a race, and the sandbox."""

    def __init__(
        self, connections: list[Connection], key: str, portal: Administration, seed: int
    ) -> None:
        self.codes = itertools.count(1)
        self._connections, self._key, self._portal = connections, key, portal
        self._random = random.Random(seed)

    async def send_all(self, *requests: Request) -> Answers:
        """Send a request over every connection at once, an equal share of each kind.

        If there are several kinds, one may be sent some milliseconds later, so that their relative
        speed does not decide the race.
        """
        sent = list(itertools.islice(itertools.cycle(requests), len(self._connections)))
        self._random.shuffle(sent)
        late = self._random.choice(requests).kind
        seconds = self._random.choice(HEAD_STARTS) * (len(requests) > 1)

        async def send(connection: Connection, request: Request) -> tuple[str, Response]:
            await asyncio.sleep(seconds if request.kind == late else 0)
            raw = make_request(request.method, request.path, self._key, request.body)
            return request.kind, await connection.send(raw)

        pairs = zip(self._connections, sent, strict=False)
        return await asyncio.gather(*[send(connection, request) for connection, request in pairs])

    async def send(
        self,
        method: str,
        path: str,
        body: str | None = None,
        expected: Sequence[int] = (200, 201),
    ) -> Response:
        """Send one request. Raises RuntimeError for other than the expected statuses, if any."""
        response = await self._connections[0].send(make_request(method, path, self._key, body))
        if expected and response.status not in expected:
            raise RuntimeError(f"{method} {path}: {response.status} {response.body[:300]}")
        return response

    async def create_draft(self) -> tuple[int, str]:
        """Create an invoice. Return (id, number)."""
        code = next(self.codes)
        response = await self.send("POST", "/api/invoices", make_invoice(code))
        return response.json()["data"]["id"], f"INV-{code:05}"

    async def create_valid(self) -> tuple[int, str]:
        """Create and submit an invoice and wait until it is Valid. Return (id, number)."""
        invoice_id, number = await self.create_draft()
        await self.send("POST", f"/api/invoices/{invoice_id}/submit-to-portal", "{}")
        await self.wait_for_status(f"/api/invoices/{invoice_id}", "Valid")
        return invoice_id, number

    async def wait_for_status(self, path: str, *statuses: str) -> str:
        """Wait until a record has one of the statuses, and return it."""
        async with asyncio.timeout(SETTLING_SECONDS):
            while (status := (await self.send("GET", path)).json()["status"]) not in statuses:
                await asyncio.sleep(0.02)
        return status

    async def read_ledger(self, number: str) -> list[dict[str, Any]]:
        """Return the portal's documents with a number."""
        return await self._portal.ledger(number=number)

    async def count_responses(self, operation: str) -> int:
        """Return the number of the portal's responses for an operation."""
        return sum((await self._portal.calls())["answers"].get(operation, {}).values())


def make_invoice(code: int) -> str:
    """Return the body of an invoice."""
    body = {
        "type": "INVOICE",
        "code": code,
        "issueDateTime": _now(),
        "buyer": BUYER,
        "lineItems": [{"id": "1", **LINE}],
    }
    return json.dumps(body)


def make_note(code: int) -> str:
    """Return the body of a credit note."""
    lines = [{"id": "1", **LINE, "unit": {"code": "KGM", "price": 1, "count": 1}}]
    kind = {"targetInvoiceType": "INVOICE", "type": "CREDIT_NOTE", "adjustmentNoteCode": code}
    return json.dumps({**kind, "adjustmentNoteIssueDate": _now(), "lineItems": lines})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def race_create(track: Track, race: Race) -> None:
    """Create invoices with one code: exactly one is stored."""
    code = next(track.codes)
    answers = await track.send_all(Request("create", "POST", "/api/invoices", make_invoice(code)))
    created = _count(answers, "create", 201)
    refusals = {_first_violation(response) for _, response in answers if response.status != 201}
    listed = (await track.send("GET", f"/api/invoices?query=INV-{code:05}")).json()["meta"]["total"]
    race.add_round(
        "one invoice",
        answers,
        created != 1 and f"{created} invoices were created",
        listed != 1 and f"{listed} invoices are listed",
        refusals - {("/code", "unique")} and f"unexpected refusals: {refusals}",
    )


async def race_submit(track: Track, race: Race) -> None:
    """Submit one invoice: the portal has one document, and all responses are equal."""
    invoice_id, number = await track.create_draft()
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    answers = await track.send_all(Request("submit", "POST", path, "{}"))
    await track.wait_for_status(f"/api/invoices/{invoice_id}", "Valid")
    documents = await track.read_ledger(number)
    statuses = _statuses(answers, "submit")
    race.add_round(
        "one document",
        answers,
        len(documents) != 1 and f"the portal has {len(documents)} documents",
        statuses != {200} and f"statuses {statuses}",
    )


async def race_cancel(track: Track, race: Race) -> None:
    """Cancel one document: the portal gets one cancellation."""
    invoice_id, number = await track.create_valid()
    before = await track.count_responses("state")
    path = f"/api/invoices/{invoice_id}/{CANCEL}"
    answers = await track.send_all(Request("cancel", "POST", path, "{}"))
    requests = await track.count_responses("state") - before
    statuses, won = _statuses(answers, "cancel"), _count(answers, "cancel", 200)
    (document,) = await track.read_ledger(number)
    race.add_round(
        "cancelled once",
        answers,
        requests != 1 and f"the portal got {requests} requests",
        won != 1 and f"{won} requests succeeded",
        statuses - {200, 403} and f"statuses {statuses}",
        document["status"] != "Cancelled" and f"status at the portal {document['status']}",
    )


async def race_note_against_cancel(track: Track, race: Race) -> None:
    """Submit a note of a Valid invoice, or cancel the invoice: never both."""
    invoice_id, number = await track.create_valid()
    code = next(track.codes)
    created = await track.send("POST", f"/api/invoices/{invoice_id}/{NOTES}", make_note(code))
    note_path = f"/api/adjustment-notes/{created.json()['data']['id']}"
    answers = await track.send_all(
        Request("note", "POST", f"{note_path}/submit-to-portal", "{}"),
        Request("cancel", "POST", f"/api/invoices/{invoice_id}/{CANCEL}", "{}"),
    )
    note_status = await track.wait_for_status(note_path, "Valid", "Invalid", "Draft")
    status = await track.wait_for_status(f"/api/invoices/{invoice_id}", "Valid", "Cancelled")
    notes, (document,) = await track.read_ledger(f"CN-{code:05}"), await track.read_ledger(number)
    is_cancelled = document["status"] == "Cancelled"
    noted, cancelled = _statuses(answers, "note"), _statuses(answers, "cancel")
    at_portal = f"the portal has {len(notes)} notes, and the invoice as {document['status']}"
    race.add_round(
        "the note" if notes else "the cancellation" if is_cancelled else "neither",
        answers,
        notes and is_cancelled and "a cancelled invoice has a note at the portal",
        len(notes) > 1 and at_portal,
        bool(notes) != (note_status == "Valid") and f"the note is {note_status}; {at_portal}",
        is_cancelled != (status == "Cancelled") and f"the invoice is {status}; {at_portal}",
        notes and cancelled - {400, 403, 409} and f"statuses of cancellations {cancelled}",
        not notes and 200 in noted and "the submission of a note succeeded, but it was not sent",
        max(noted | cancelled) >= 500 and f"statuses {noted} and {cancelled}",
    )


async def race_delete_against_submit(track: Track, race: Race) -> None:
    """Submit an invoice, or delete it: never both."""
    invoice_id, number = await track.create_draft()
    path = f"/api/invoices/{invoice_id}"
    answers = await track.send_all(
        Request("submit", "POST", f"{path}/submit-to-portal", "{}"),
        Request("delete", "DELETE", path),
    )
    is_deleted = (await track.send("GET", path, expected=())).status == 404
    if not is_deleted:
        await track.wait_for_status(path, "Valid", "Draft")
    documents = await track.read_ledger(number)
    submits, deletions = _statuses(answers, "submit"), _statuses(answers, "delete")
    deleted = _count(answers, "delete", 200)
    race.add_round(
        "the deletion" if is_deleted else "the submission",
        answers,
        is_deleted and documents and "a deleted invoice is at the portal",
        not is_deleted and len(documents) != 1 and f"the portal has {len(documents)} documents",
        is_deleted and deleted != 1 and f"{deleted} deletions",
        submits - {404 if is_deleted else 200} and f"statuses of submissions {submits}",
        not is_deleted and deletions - {403} and f"statuses of deletions {deletions}",
    )


RACES: dict[str, Callable[[Track, Race], Awaitable[None]]] = {
    "create with one code": race_create,
    "submit one invoice": race_submit,
    "cancel one document": race_cancel,
    "a note against a cancellation": race_note_against_cancel,
    "a deletion against a submission": race_delete_against_submit,
}


def _count(answers: Answers, kind: str, status: int) -> int:
    return sum(each == kind and response.status == status for each, response in answers)


def _statuses(answers: Answers, kind: str) -> set[int]:
    return {response.status for each, response in answers if each == kind}


def _first_violation(response: Response) -> tuple[str | None, str | None]:
    """Return (path, rule) of the first violation in a response."""
    violation = (response.json().get("errors") or [{}])[0]
    return violation.get("path"), violation.get("rule")


async def main(options: argparse.Namespace) -> None:
    """Run the selected races and print the results."""
    races: dict[str, Race] = {}
    began = time.perf_counter()
    async with (
        start_service(sandbox=True, variables=VARIABLES) as service,
        service.make_another() as second,
    ):
        company = await service.add_company()
        ports = itertools.islice(itertools.cycle((service.port, second.port)), options.ways)
        connections = [Connection(port) for port in ports]
        track = Track(connections, company.key, service.portal, options.seed)
        for name, run_round in RACES.items():
            if options.only in name:
                race = races[name] = Race()
                for _ in range(options.rounds):
                    await run_round(track, race)
                seconds = time.perf_counter() - began
                print(f"{name}: {race.rounds} rounds, {seconds:.0f} s so far", flush=True)
    _print_races(races, options)
    if any(race.violations for race in races.values()):
        sys.exit(1)


def _print_races(races: dict[str, Race], options: argparse.Namespace) -> None:
    rows = [
        (name, race.rounds, _join(race.outcomes), _join(race.statuses), len(race.violations))
        for name, race in races.items()
    ]
    title = f"{options.ways} concurrent requests, two processes, seed {options.seed}"
    print_table(title, ("", "rounds", "won by", "responses", "violations"), rows)
    for name, race in races.items():
        for violation in race.violations[:10]:
            print(f"  {name}, {violation}")


def _join(counts: Counter[str]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--rounds", type=int, default=50, help="of each race")
    parser.add_argument("--ways", type=int, default=50, help="concurrent requests")
    parser.add_argument(
        "--seed",
        type=int,
        default=secrets.randbelow(10**6),
        help="of the order in which they are sent",
    )
    parser.add_argument("--only", default="", help="only races whose name contains this text")
    run(main(parser.parse_args()))
