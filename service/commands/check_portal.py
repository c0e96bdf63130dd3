"""The check of the connection to the portal, before the first document and after changes."""

import logging
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

from service.commands.command_line import CommandLine
from service.commands.companies import find_comparable_companies
from service.commands.reconcile import submission_context
from service.config import Config
from service.db.transactions import Database
from service.submission.operator.connection_check import CheckStep, ConnectionCheck
from service.submission.signers import Signers

#: Widths of the columns of the state and of the name.
STATE_WIDTH, NAME_WIDTH = 7, 22
NO_COMPANIES = "No company has an API key yet: `run.py add-company`, then `run.py add-key`."


def register(line: CommandLine) -> None:
    line.add("check-portal", _check_portal)


async def _check_portal(config: Config, database: Database, company_id: int | None) -> None:
    """Check the connection to the portal.

    Prints a line for each step: addresses, clock, login, certificate, code lists; with `--company`
    also the company's profile, login, TIN and certificate, otherwise a line for each company that
    can send. Sends no document. Exit code 1 if a step failed.
    """
    logging.disable(logging.CRITICAL)  # The log would repeat what the steps say.
    sys.exit(0 if await check_portal(config, database, company_id) else 1)


async def check_portal(config: Config, database: Database, company_id: int | None = None) -> bool:
    """Print a line for each step, and return whether none failed. Raises OperatorError."""
    has_failed = False
    async with submission_context(config, database) as context:
        check = ConnectionCheck(replace(context, signers=Signers(config)))
        of_companies = (
            _summarize_companies(check, database)
            if company_id is None
            else check.check_company(company_id)
        )
        try:
            for steps in (check.check_portal(), of_companies):
                async for step in steps:
                    has_failed |= step.state == "failed"
                    line = f"{step.state:{STATE_WIDTH}} {step.name:{NAME_WIDTH}} {step.text}"
                    print(line, flush=True)
        finally:
            await check.close()
    return not has_failed


async def _summarize_companies(
    check: ConnectionCheck, database: Database
) -> AsyncIterator[CheckStep]:
    """Yield a step for each company that can send, or has sent."""
    ids = await find_comparable_companies(database)
    if not ids:
        yield CheckStep("companies", "skipped", NO_COMPANIES)
    for company_id in ids:
        steps = [step async for step in check.check_company(company_id)]
        yield _summarize(company_id, steps)


def _summarize(company_id: int, steps: list[CheckStep]) -> CheckStep:
    name = f"company {company_id}"
    if failed := [step.name for step in steps if step.state == "failed"]:
        text = f"Failed: {', '.join(failed)}. Run `run.py check-portal --company {company_id}`."
        return CheckStep(name, "failed", text)
    # Documents of some versions need no certificate.
    if unchecked := [
        step.name for step in steps if step.state == "skipped" and step.name != "certificate"
    ]:
        return CheckStep(name, "skipped", f"Not checked: {', '.join(unchecked)}.")
    passed = [step.name for step in steps if step.state == "ok"]
    return CheckStep(name, "ok", ", ".join(passed))
