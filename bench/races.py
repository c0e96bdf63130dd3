#!/usr/bin/env python3
"""Fifty requests at once for one thing that only one of them can have, at two processes of the service on one database.

    .venv/bin/python bench/races.py [--rounds N] [--ways N] [--seed S] [--only NAME]

A round makes what is raced for, sends all requests in random order over connections that are open already, half of
them to each process, and then asks the service and the sandbox's ledger what is true. Ends with 1 when one round
had two winners, none where there has to be one, or a truth that the answers do not tell.
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
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiohttp
from ground import ground, run, table
from requests import BUYER, LINE
from wire import Connection, request

VARIABLES = {
    "SANDBOX_PROCESSING_SECONDS": "0",
    "PORTAL_POLL_SECONDS": "0.05",
    "PORTAL_POLL_MAX_SECONDS": "0.2",
    "LOG_LEVEL": "WARNING",
}
SETTLING = 60  # seconds
STARTS = (0, 0, 0.003, 0.01, 0.03)  # seconds
CANCEL, NOTES = "cancel-latest-invoice-submitted", "adjustment-note"


@dataclass(slots=True)
class Race:
    """What came of the rounds of one race."""

    rounds: int = 0
    outcomes: Counter = field(default_factory=Counter)
    statuses: Counter = field(default_factory=Counter)
    violations: list = field(default_factory=list)

    def ended(self, outcome, answers, *broken):
        """Notes a round; `broken` are the rules that did not hold, None for each that did."""
        self.rounds += 1
        self.outcomes[outcome] += 1
        self.statuses.update(f"{kind} {answer.status}" for kind, answer in answers)
        self.violations += [f"round {self.rounds}: {rule}" for rule in broken if rule]


class Track:
    """Two processes, a connection for each request of a race, and the sandbox's ledger."""

    def __init__(self, ports, key, ways, portal, http, chance):
        self.connections = [
            Connection(port) for port in itertools.islice(itertools.cycle(ports), ways)
        ]
        self.key, self._portal, self._http, self._chance = key, portal, http, chance
        self.codes = itertools.count(1)

    async def all_at_once(self, *kinds):
        """[(kind, Answer)] of requests sent at once; `kinds` are (kind, method, path, JSON text), as many of each.

        Where there are several kinds, one may have a start of some milliseconds: which of them is quicker decides nothing.
        """
        asked = list(itertools.islice(itertools.cycle(kinds), len(self.connections)))
        self._chance.shuffle(asked)
        late, seconds = (
            self._chance.choice(kinds)[0],
            self._chance.choice(STARTS) * (len(kinds) > 1),
        )

        async def ask(connection, kind, method, path, body):
            await asyncio.sleep(seconds if kind == late else 0)
            return kind, await connection.ask(request(method, path, self.key, body))

        return await asyncio.gather(
            *[
                ask(connection, *each)
                for connection, each in zip(self.connections, asked, strict=False)
            ]
        )

    async def one(self, method, path, body=None, expected=(200, 201)):
        answer = await self.connections[0].ask(request(method, path, self.key, body))
        if expected and answer.status not in expected:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:300]}")
        return answer

    async def draft(self):
        """(id, number) of a new invoice."""
        code = next(self.codes)
        told = await self.one("POST", "/api/invoices", invoice(code))
        return told.json()["data"]["id"], f"INV-{code:05}"

    async def valid(self):
        """(id, number) of an invoice that the portal has found Valid."""
        id, number = await self.draft()
        await self.one("POST", f"/api/invoices/{id}/submit-to-portal", "{}")
        await self.settled(f"/api/invoices/{id}", "Valid")
        return id, number

    async def settled(self, path, *statuses):
        """The status of a record once it is one of `statuses`."""
        async with asyncio.timeout(SETTLING):
            while (status := (await self.one("GET", path)).json()["status"]) not in statuses:
                await asyncio.sleep(0.02)
        return status

    async def ledger(self, number):
        """What the portal has under a number."""
        async with self._http.get(
            f"{self._portal}/_sandbox/ledger", params={"number": number}
        ) as response:
            return (await response.json())["documents"]

    async def calls(self, operation):
        """{status: count} of the answers of the portal so far."""
        async with self._http.get(f"{self._portal}/_sandbox/calls") as response:
            return (await response.json())["answers"].get(operation, {})


def invoice(code):
    lines = [{"id": "1", **LINE}]
    body = {
        "type": "INVOICE",
        "code": code,
        "issueDateTime": _now(),
        "buyer": BUYER,
        "lineItems": lines,
    }
    return json.dumps(body)


def note(code):
    lines = [{"id": "1", **LINE, "unit": {"code": "KGM", "price": 1, "count": 1}}]
    kind = {"targetInvoiceType": "INVOICE", "type": "CREDIT_NOTE", "adjustmentNoteCode": code}
    return json.dumps({**kind, "adjustmentNoteIssueDate": _now(), "lineItems": lines})


def _now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def create(track, race):
    """One code: one invoice."""
    code = next(track.codes)
    answers = await track.all_at_once(("create", "POST", "/api/invoices", invoice(code)))
    made = _won(answers, 201)
    told = {_fault(answer) for _, answer in answers if answer.status != 201}
    listed = (await track.one("GET", f"/api/invoices?query=INV-{code:05}")).json()["meta"]["total"]
    race.ended(
        "one invoice",
        answers,
        made != 1 and f"{made} invoices were made",
        listed != 1 and f"{listed} invoices are there",
        told - {("/code", "unique")} and f"another refusal: {told}",
    )


async def submit(track, race):
    """One invoice: one document at the portal, and the same answer to all."""
    id, number = await track.draft()
    answers = await track.all_at_once(
        ("submit", "POST", f"/api/invoices/{id}/submit-to-portal", "{}")
    )
    await track.settled(f"/api/invoices/{id}", "Valid")
    documents = await track.ledger(number)
    told = {answer.status for _, answer in answers}
    race.ended(
        "one document",
        answers,
        len(documents) != 1 and f"the portal has {len(documents)} documents",
        told != {200} and f"answers {told}",
    )


async def cancel(track, race):
    """One document: one cancellation at the portal."""
    id, number = await track.valid()
    before = await track.calls("state")
    answers = await track.all_at_once(("cancel", "POST", f"/api/invoices/{id}/{CANCEL}", "{}"))
    after = await track.calls("state")
    asked = sum(after.values()) - sum(before.values())
    told, won = {answer.status for _, answer in answers}, _won(answers, 200)
    (document,) = await track.ledger(number)
    race.ended(
        "cancelled once",
        answers,
        asked != 1 and f"the portal was asked {asked} times",
        won != 1 and f"{won} were told that they cancelled it",
        told - {200, 403} and f"answers {told}",
        document["status"] != "Cancelled" and f"the portal has it as {document['status']}",
    )


async def note_against_cancel(track, race):
    """A note of a Valid invoice goes to the portal, or the invoice is cancelled; never both."""
    id, number = await track.valid()
    code = next(track.codes)
    made = (await track.one("POST", f"/api/invoices/{id}/{NOTES}", note(code))).json()["data"]["id"]
    answers = await track.all_at_once(
        ("note", "POST", f"/api/adjustment-notes/{made}/submit-to-portal", "{}"),
        ("cancel", "POST", f"/api/invoices/{id}/{CANCEL}", "{}"),
    )
    noted = await track.settled(f"/api/adjustment-notes/{made}", "Valid", "Invalid", "Draft")
    invoiced = await track.settled(f"/api/invoices/{id}", "Valid", "Cancelled")
    notes, (document,) = await track.ledger(f"CN-{code:05}"), await track.ledger(number)
    cancelled = document["status"] == "Cancelled"
    told = {
        kind: {answer.status for each, answer in answers if each == kind}
        for kind in ("note", "cancel")
    }
    race.ended(
        "the note" if notes else "the cancellation" if cancelled else "neither",
        answers,
        notes and cancelled and "a cancelled invoice has a note at the portal",
        len(notes) > 1 and f"the portal has {len(notes)} notes",
        bool(notes) != (noted == "Valid")
        and f"the note is {noted}, and the portal has {len(notes)}",
        cancelled != (invoiced == "Cancelled")
        and f"the invoice is {invoiced}, and at the portal {document['status']}",
        notes and told["cancel"] - {400, 403, 409} and f"cancellations answered {told['cancel']}",
        not notes and 200 in told["note"] and "a note was said to be submitted",
        max(told["note"] | told["cancel"]) >= 500 and f"answers {told}",
    )


async def delete_against_submit(track, race):
    """An invoice goes to the portal, or is deleted; never both."""
    id, number = await track.draft()
    answers = await track.all_at_once(
        ("submit", "POST", f"/api/invoices/{id}/submit-to-portal", "{}"),
        ("delete", "DELETE", f"/api/invoices/{id}", None),
    )
    deleted = (await track.one("GET", f"/api/invoices/{id}", expected=None)).status == 404
    if not deleted:
        await track.settled(f"/api/invoices/{id}", "Valid", "Draft")
    documents = await track.ledger(number)
    told = {
        kind: Counter(answer.status for each, answer in answers if each == kind)
        for kind in ("submit", "delete")
    }
    race.ended(
        "the deletion" if deleted else "the submission",
        answers,
        deleted and documents and "a deleted invoice is at the portal",
        not deleted and len(documents) != 1 and f"the portal has {len(documents)} documents",
        deleted and told["delete"][200] != 1 and f"{told['delete'][200]} deletions",
        deleted and set(told["submit"]) - {404} and f"submissions answered {dict(told['submit'])}",
        not deleted
        and set(told["delete"]) - {403}
        and f"deletions answered {dict(told['delete'])}",
        not deleted
        and set(told["submit"]) - {200}
        and f"submissions answered {dict(told['submit'])}",
    )


RACES = {
    "create with one code": create,
    "submit one invoice": submit,
    "cancel one document": cancel,
    "a note against a cancellation": note_against_cancel,
    "a deletion against a submission": delete_against_submit,
}


def _won(answers, status):
    return sum(answer.status == status for _, answer in answers)


def _fault(answer):
    told = (answer.json().get("errors") or [{}])[0]
    return told.get("path"), told.get("rule")


async def main(options):
    raced, began = {}, time.perf_counter()
    async with (
        ground(sandbox=True, **VARIABLES) as service,
        service.twin() as second,
        aiohttp.ClientSession() as http,
    ):
        company = await service.company()
        chance, ports, portal = (
            random.Random(options.seed),
            (service.port, second),
            service.config.portal_api_base,
        )
        track = Track(ports, company.key, options.ways, portal, http, chance)
        for name, run_round in RACES.items():
            if options.only in name:
                race = raced[name] = Race()
                for _ in range(options.rounds):
                    await run_round(track, race)
                print(
                    f"{name}: {race.rounds} rounds, {time.perf_counter() - began:.0f} s so far",
                    flush=True,
                )
    _print(raced, options)
    if any(race.violations for race in raced.values()):
        sys.exit(1)


def _print(raced, options):
    rows = [
        (name, race.rounds, _counted(race.outcomes), _counted(race.statuses), len(race.violations))
        for name, race in raced.items()
    ]
    title = f"{options.ways} requests at once, two processes, seed {options.seed}"
    table(title, ("", "rounds", "won by", "answers", "violations"), rows)
    for name, race in raced.items():
        for violation in race.violations[:10]:
            print(f"  {name}, {violation}")


def _counted(counts):
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50, help="of each race")
    parser.add_argument("--ways", type=int, default=50, help="requests at once")
    parser.add_argument(
        "--seed",
        type=int,
        default=secrets.randbelow(10**6),
        help="of the order in which they are sent",
    )
    parser.add_argument("--only", default="", help="races whose name has this in it")
    run(main(parser.parse_args()))
