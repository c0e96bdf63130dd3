"""The comparison with the portal by hand, and what a person does about what it found."""

from collections.abc import Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from service import json_codec
from service.commands.bootstrap import with_database, with_portal
from service.commands.companies import CommandError
from service.config import Config
from service.db.statements import sql
from service.monitoring.conditions import collect, read_rows
from service.portal.client import Portal, portal_session
from service.portal.errors import PortalError
from service.portal.logins import RefusedLogins
from service.portal.rate_limits import PortalRateLimiter
from service.submission import manual_resolution
from service.submission.context import SubmissionContext
from service.submission.sweep import MOST_DAYS, sweep

SHOWN_FOR = timedelta(days=3)  # after the portal showed an oddity last
WHAT_TO_DO = (
    "Look the document up on the portal's own pages. It is skipped, and everything else goes on; if it is one of the "
    "company's, settle its submission by hand (settle-submission), and update the service so that it can read it."
)
PATIENCE = timedelta(minutes=2)  # with the portal's quotas, which the service uses too


@asynccontextmanager
async def with_submission_context(config):
    """A Desk for a command that asks the portal and sends nothing to it."""
    async with (
        with_database(with_portal(config)) as (config, database),
        portal_session(config) as session,
    ):
        gate, refusals = (
            PortalRateLimiter(database, config, urgent=False, patience=PATIENCE),
            RefusedLogins(database, config),
        )
        portal = Portal(session, config, rate_limiter=gate, refusals=refusals)
        yield SubmissionContext(config, database, session=None, portal=portal, signers=None)


async def reconcile(config, company=None, days=1):
    """{companies, open, failed}: what a sweep of one company, or of all, says, and how many findings are open.

    `failed` counts the companies for which the portal could not be asked. Raises CommandError.
    """
    if not 1 <= days <= MOST_DAYS:
        raise CommandError(f"--days is 1 to {MOST_DAYS}: the portal lists no more.")
    async with with_submission_context(config) as context:
        results = [await _swept(context, id, days) for id in await _companies(context, company)]
    found = sum(len(one.get("findings", ())) for one in results)
    return {"companies": results, "open": found, "failed": sum("error" in one for one in results)}


async def _companies(context, company):
    async with context.database.across() as conn:
        ids = [row["company_id"] for row in await sql.sweep_companies(conn)]
    if company is None:
        return ids
    if company not in ids:
        raise CommandError(f"There is no company {company} that has a key.")
    return [company]


async def _swept(context, company, days):
    try:
        return _readable(await sweep(context, company, days))
    except PortalError as why:
        return {"company_id": company, "error": str(why)}


async def hold_sending(config, reason):
    """{held}: how many companies were not held before."""
    async with with_database(config) as (_, database), database.across() as conn:
        return {"held": await sql.hold_set(conn, reason=reason)}


async def resolve_finding(config, ids, note):
    """{resolved, released}: the ids, and the companies whose sending goes on with it. Raises CommandError."""
    async with with_database(config) as (config, database):
        owners = [await _owner(database, id) for id in ids]
        released = set()
        for company, id in zip(owners, ids, strict=False):
            async with database.company(company) as conn:
                if not await sql.finding_resolve(conn, company_id=company, id=id, note=note):
                    raise CommandError(f"Finding {id} is settled already.")
                if await sql.hold_release(conn, company_id=company, settle=config.portal_settle):
                    released.add(company)
        return {"resolved": ids, "released": sorted(released)}


async def _owner(database, id):
    async with database.across() as conn:
        company = await sql.finding_company(conn, id=id)
    if company is None:
        raise CommandError(f"There is no finding {id}.")
    return company


async def settle_submission(config, company, id, uuids, note):
    """{company_id, submission_id, state}; without `uuids` the portal never had it. Raises CommandError."""
    async with with_submission_context(config) as context:
        try:
            if uuids:
                return await manual_resolution.resolve_as_received(
                    context, company, id, uuids, note
                )
            return await manual_resolution.resolve_as_not_received(context, company, id, note)
        except manual_resolution.CannotResolve as why:
            raise CommandError(str(why)) from None
        except PortalError as why:
            raise CommandError(
                f"The portal could not be asked, and nothing was changed: {why}"
            ) from None


async def attention(config):
    """Return {conditions, submissions, findings, holds, oddities, refused_logins}, of all companies, the longest first.

    `conditions` say in words what is the case and what to do; the lists have what waits for a person.
    """
    async with with_database(with_portal(config)) as (config, database):
        async with database.across() as conn:
            rows = await sql.attention_list(conn)
            odd = await sql.odd_rows_list(conn, span=SHOWN_FOR)
            conditions = collect(await read_rows(conn, config))
        refused = await RefusedLogins(database, config).listed()
    lists = {"submission": [], "finding": [], "hold": []}
    for row in rows:
        known = {"company_id": row["company_id"], "id": row["id"], "since": row["since"]}
        lists[row["kind"]].append(_readable({**known, **json_codec.loads(row["facts"].encode())}))
    return {
        "conditions": [condition.as_json() for condition in conditions],
        **{f"{kind}s": found for kind, found in lists.items()},
        "oddities": [_readable(_odd_row(row)) for row in odd],
        "refused_logins": [_readable(row) for row in refused],
    }


def _odd_row(row: Mapping[str, Any]) -> dict[str, Any]:
    known = {"company_id": row["company_id"], "id": row["id"], "since": row["since"]}
    return {**known, **json_codec.loads(row["facts"].encode()), "what_to_do": WHAT_TO_DO}


async def retry_logins(config: Config, tin: str | None) -> dict[str, int]:
    """Have the next call log in at once, for one taxpayer or for all; {forgotten: number of refused logins}."""
    async with with_database(with_portal(config)) as (config, database):
        return {"forgotten": await RefusedLogins(database, config).forget(tin)}


def _readable(value):
    """The value with instants as text."""
    if isinstance(value, dict):
        return {name: _readable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_readable(member) for member in value]
    return value.isoformat() if hasattr(value, "isoformat") else value
