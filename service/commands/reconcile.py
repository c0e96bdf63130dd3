"""The comparison with the portal, and the manual resolution of what needs a person."""

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from service import json_codec
from service.commands.command_line import CommandLine, print_json
from service.commands.companies import find_comparable_companies
from service.config import Config
from service.db.statements import sql
from service.db.transactions import Database
from service.documents.ubl import parties
from service.errors import OperatorError
from service.json_types import JsonMapping, JsonObject
from service.monitoring.watchdog import read_conditions, sort_by_age
from service.portal.client import Portal, portal_session
from service.portal.errors import PortalError
from service.portal.logins import WHAT_TO_DO, RefusedLogins
from service.portal.rate_limits import PortalRateLimiter
from service.portal.responses import LOGIN_REFUSED
from service.submission.context import SubmissionContext
from service.submission.following.comparison import compare
from service.submission.machine.comparison_rules import MOST_DAYS
from service.submission.operator import manual_resolution

SHOWN_FOR = timedelta(days=3)  # How long an odd row is listed after the portal last showed it.
#: Kind of what needs a person -> its name as a list.
KINDS = {
    "submission": "submissions",
    "finding": "findings",
    "hold": "holds",
    "oddity": "oddities",
}
#: What to do about errors of the portal, by their messages.
ACTIONS = {LOGIN_REFUSED: WHAT_TO_DO["login"]}
STILL_HELD = (
    "Its sending is still held. The hold ends with a comparison later than PORTAL_SETTLE_SECONDS "
    "after its beginning, if nothing is open."
)
PATIENCE = timedelta(minutes=2)  # The longest wait for the portal's shared rate limits.


def register(line: CommandLine) -> None:
    parser = line.add("reconcile", _reconcile)
    parser.add_argument(
        "--days", type=int, metavar="N", help=f"days to compare at least, up to {MOST_DAYS}"
    )
    line.add("hold-sending", hold_sending)
    line.add("attention", attention)
    line.add("retry-logins", retry_logins)
    line.add("resolve-finding", resolve_finding)
    line.add("resolve-submission", resolve_submission)


async def _reconcile(
    config: Config, database: Database, company_id: int | None, days: int | None
) -> None:
    """Compare companies with the portal since their latest comparison, at least 74 hours, and print
    the differences. Exit code 1 if any is open. Ends a hold that is older than
    PORTAL_SETTLE_SECONDS where nothing is open.
    """
    result = await reconcile(config, database, company_id, days)
    print_json(result)
    for problem in _describe_problems(result):
        print(problem, file=sys.stderr)
    sys.exit(1 if result["open"] or result["failed"] or result.get("clocks") else 0)


def _describe_problems(result: JsonMapping) -> Iterator[str]:
    """Yield a line for each problem of the environment: what is wrong, and what to do."""
    for each in result["companies"]:
        if "error" in each:
            action = ACTIONS.get(each["error"], "Read docs/operations.md, Conditions.")
            yield f"Company {each['company_id']}: {each['error']} {action}"
        elif each["held"]:
            yield f"Company {each['company_id']}: {STILL_HELD}"
    if "clocks" in result:
        yield f"{result['clocks']} Synchronise the clock of the database server (NTP)."


@asynccontextmanager
async def submission_context(
    config: Config, database: Database
) -> AsyncIterator[SubmissionContext]:
    """Yield a context for a command that reads from the portal and sends nothing to it."""
    async with portal_session() as session:
        rate_limiter = PortalRateLimiter(database, config, urgent=False, patience=PATIENCE)
        portal = Portal(
            session, config, rate_limiter=rate_limiter, refusals=RefusedLogins(database, config)
        )
        yield SubmissionContext(
            config,
            database,
            session=None,  # pyright: ignore[reportArgumentType] - only sending takes locks
            shared_portal=portal,
            signers=None,  # pyright: ignore[reportArgumentType] - only sending signs
        )


async def reconcile(
    config: Config, database: Database, company_id: int | None = None, days: int | None = None
) -> JsonObject:
    """Compare one company, or all, with the portal, and return {companies, open, failed}.

    `open` counts open findings, `failed` the companies for which the portal did not answer. A
    member `clocks` describes clocks that differ too far. Raises OperatorError.
    """
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise OperatorError(f"--days must be 1 to {MOST_DAYS}, the span that the portal lists.")
    async with submission_context(config, database) as context:
        results = [
            await _compare_company(context, each, days)
            for each in await _find_companies(context, company_id)
        ]
        apart = await context.compare_clocks(context.shared_portal)
    clocks = {"clocks": apart["message"]} if apart else {}
    found = sum(len(one.get("findings", ())) for one in results)
    failed = sum("error" in one for one in results)
    return {"companies": results, "open": found, "failed": failed, **clocks}


async def _find_companies(context: SubmissionContext, company_id: int | None) -> list[int]:
    ids = await find_comparable_companies(context.database)
    if company_id is None:
        return ids
    if company_id not in ids:
        raise OperatorError(
            f"There is no company {company_id} that has a verified TIN or has sent."
        )
    return [company_id]


async def _compare_company(
    context: SubmissionContext, company_id: int, days: int | None
) -> JsonObject:
    print(f"Comparing company {company_id}.", file=sys.stderr, flush=True)
    try:
        return await compare(context, company_id, days)
    except PortalError as error:
        return {"company_id": company_id, "error": str(error)}


async def hold_sending(config: Config, database: Database, reason: str) -> dict[str, int]:
    """Send nothing until each company was compared with the portal."""
    return {"held": await database.call(sql.hold_sending, why=reason, known_until=None)}


async def resolve_finding(
    config: Config, database: Database, ids: Sequence[int], note: str
) -> JsonObject:
    """Close findings of a comparison."""
    owners = {finding_id: await _find_owner(database, finding_id) for finding_id in ids}
    resolved: list[int] = []
    released: set[int] = set()
    for finding_id, company_id in owners.items():
        async with database.company(company_id) as conn:
            if await sql.finding_resolve(conn, id=finding_id, note=note):
                resolved.append(finding_id)
            settle = config.portal_settle
            if await sql.hold_release(conn, settle=settle):
                released.add(company_id)
    return {"resolved": resolved, "released": sorted(released)}


async def _find_owner(database: Database, finding_id: int) -> int:
    company_id = await database.call(sql.company_of_finding, finding=finding_id)
    if company_id is None:
        raise OperatorError(f"There is no finding {finding_id}.")
    return company_id


async def resolve_submission(
    config: Config, database: Database, uuids: list[str] | None, **case: Any
) -> JsonObject:
    """Resolve a submission that needs manual review.

    `--received` must name the document that was sent. `--not-received` is rejected while the portal
    lists a document that may be it.
    """
    async with submission_context(config, database) as context:
        try:
            if uuids:
                return await manual_resolution.resolve_as_received(context, uuids=uuids, **case)
            return await manual_resolution.resolve_as_not_received(context, **case)
        except PortalError as error:
            raise OperatorError(
                f"The portal request failed, and nothing was changed: {error}"
            ) from None


async def attention(config: Config, database: Database) -> JsonObject:
    """List what needs a person: submissions, findings, holds, odd rows of the portal, rejected
    logins.
    """
    async with database.across() as conn:
        rows = await sql.attention(conn, shown_for=SHOWN_FOR)
        conditions = sort_by_age(await read_conditions(conn, config))
    return {
        "conditions": [condition.as_json() for condition in conditions],
        **{
            name: [_with_facts(row) for row in rows if row["kind"] == kind]
            for kind, name in KINDS.items()
        },
        "refused_logins": await RefusedLogins(database, config).listed(),
    }


def _with_facts(row: asyncpg.Record) -> JsonObject:
    """Return the columns of a row and the members of its JSON column `facts`."""
    known = {"company_id": row["company_id"], "id": row["id"], "since": row["since"]}
    return {**known, **json_codec.loads(row["facts"].encode())}


async def retry_logins(config: Config, database: Database, tin: str | None) -> dict[str, int]:
    """Log in at once where the portal rejected the login, for one taxpayer or all."""
    taxpayer = parties.normalize_tin(tin) if tin else None
    return {"forgotten": await RefusedLogins(database, config).forget(taxpayer)}
