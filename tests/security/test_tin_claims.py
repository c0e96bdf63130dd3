"""An unverified claim on a TIN blocks no other company; the first verification wins."""

import asyncio
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.companies import add_company, share_tin, unshare_tin, verify_tin
from service.config import Config
from service.db.pool import connected_pool
from service.db.statements import sql
from service.db.transactions import Database
from tests.api.test_companies import company_record, put, update
from tests.api.test_validations import TIN, check_tin
from tests.api_invoices import create_invoice, create_submitted_invoice, create_valid_invoice
from tests.api_requests import submit
from tests.conftest import DEMO_COMPANY, Client, Company, StartService, make_company
from tests.fixtures_dashboard import SignIn
from tests.fixtures_service import RunCommand
from tests.harness.bodies import now
from tests.operations.test_commands import read_error, read_result
from tests.security.test_tin_ownership import OTHER, OWN, TAKEN, UNVERIFIED
from tests.submission.test_comparison import wait_for_finding

MANY = 1000
AT_ONCE = 8
CLAIM = (
    "insert into companies (name, tin_code) select 'Claimant', $1 from generate_series(1, $2::int)"
)
UPDATED = "select count(*) from events where type = 'company.updated' and company_id = $1"


async def count_updates(owner: asyncpg.Connection, company_id: int) -> int:
    """Return the number of events `company.updated` of a company."""
    count: Any = await owner.fetchval(UPDATED, company_id)
    return count


@pytest.fixture
async def rivals(start: StartService, environment: dict[str, str]) -> list[tuple[Company, Client]]:
    """Two companies that have claimed the TIN OTHER in different spellings."""
    companies = [await make_company(environment) for _ in range(2)]
    rivals = [(company, await start(company, background=False)) for company in companies]
    for (_, api), spelling in zip(rivals, (OTHER, "c 2088-0059990"), strict=True):
        assert (await update(api, tin_code=spelling))["tin_verified"] is False
    return rivals


async def add_claims(owner: asyncpg.Connection, company_id: int) -> None:
    """Let many companies claim the TIN of a company before it is verified."""
    verify = "update companies set tin_verified_at = {} where id = $1"
    await owner.execute(verify.format("null"), company_id)
    await owner.execute(CLAIM, OWN.lower(), MANY)
    await owner.execute(verify.format("now()"), company_id)


async def test_the_first_verification_decides_between_claims(
    rivals: list[tuple[Company, Client]], command: RunCommand, owner: asyncpg.Connection
) -> None:
    (winner, api), (loser, theirs) = rivals
    before = await count_updates(owner, loser.id)
    made = await read_result(command("verify-tin", "--company", winner.id))
    assert (made["company_id"], made["tin"]) == (winner.id, OTHER)
    await create_submitted_invoice(api)
    assert await count_updates(owner, loser.id) == before + 1
    assert (await company_record(theirs))["tin_verified"] is False
    assert await submit(theirs, await create_invoice(theirs)) == (400, UNVERIFIED)
    status, body = await check_tin(theirs, **TIN)
    assert (status, body["code"]) == (400, "tin_not_verified")
    refusal = await read_error(command("verify-tin", "--company", loser.id))
    assert refusal == TAKEN["message"]
    assert await count_updates(owner, loser.id) == before + 1


async def test_a_company_added_by_the_operator_wins_over_claims(
    rivals: list[tuple[Company, Client]], command: RunCommand, owner: asyncpg.Connection
) -> None:
    counts = [await count_updates(owner, company.id) for company, _ in rivals]
    made = await read_result(command("add-company", "--name", "A", "--tin", OTHER.lower()))
    for (company, _), count in zip(rivals, counts, strict=True):
        assert await count_updates(owner, company.id) == count + 1
    assert (await read_result(command("verify-tin", "--company", made["id"])))["tin_verified_at"]
    for company, _ in rivals:
        assert await read_error(command("verify-tin", "--company", company.id)) == TAKEN["message"]


async def test_an_automatic_verification_wins_over_claims(
    rivals: list[tuple[Company, Client]], start: StartService
) -> None:
    (winner, _), (loser, theirs) = rivals
    api = await start(winner, TIN_VERIFICATION="automatic")
    assert (await update(api, tin_code=OTHER))["tin_verified"] is True
    assert (await company_record(theirs))["tin_verified"] is False
    late = await start(loser, TIN_VERIFICATION="automatic")
    assert await put(late, tin_code=OTHER) == (409, TAKEN)
    assert (await update(late, city="Ipoh"))["tin_verified"] is False


async def test_a_lost_claim_needs_attention(
    start: StartService,
    environment: dict[str, str],
    owner: asyncpg.Connection,
    sign_in: SignIn,
    config: Config,
) -> None:
    visitor = await sign_in(await start(), "reader")
    title = f"The TIN {OTHER} was verified for another company"
    await owner.execute("update companies set tin_code = $1, tin_verified_at = null", OTHER)
    assert title not in await visitor.read_words("/")
    other = await make_company(environment, tin_code=OTHER)
    assert title in await visitor.read_words("/")
    await run_command(config, share_tin, OTHER, "Two branches")
    assert title not in await visitor.read_words("/")
    await run_command(config, unshare_tin, OTHER)
    await owner.execute("update companies set tin_code = $2 where id = $1", other.id, OWN)
    assert title not in await visitor.read_words("/")


async def test_of_concurrent_verifications_of_one_tin_one_succeeds(
    environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    ids = [(await make_company(environment)).id for _ in range(AT_ONCE)]
    await owner.execute("update companies set tin_code = $1, tin_verified_at = null", OTHER)

    async with connected_pool(environment["DATABASE_URL"], AT_ONCE) as pool:
        database = Database(pool)
        barrier = asyncio.Barrier(AT_ONCE)

        async def verify(company_id: int) -> Any:
            async with database.company(company_id) as conn:
                stored = await sql.company_lock(conn, company_id=company_id)
                await barrier.wait()
                values = {"action": "verify", "subject": f"TIN {OTHER}", "verifies_tin": True}
                return await sql.company_update(conn, company_id=company_id, **values, **stored)

        made: list[Any] = await asyncio.gather(*map(verify, ids), return_exceptions=True)
    refused = [one for one in made if isinstance(one, Exception)]
    assert len(refused) == AT_ONCE - 1
    assert {getattr(one, "constraint_name", one) for one in refused} == {"companies_tin_once"}
    held = "select count(*) from companies where tin = $1 and tin_verified_at is not null"
    assert await owner.fetchval(held, OTHER) == 1
    winner = ids[[isinstance(one, Exception) for one in made].index(False)]
    for company_id in ids:  # one event of the own verification, or of the lost claim
        assert await count_updates(owner, company_id) == 1, (company_id, winner)


async def test_of_concurrent_automatic_verifications_one_succeeds(
    start: StartService, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    """The companies have claimed the TIN before, in other spellings."""
    companies = [await make_company(environment) for _ in range(AT_ONCE)]
    await owner.execute("update companies set tin_code = lower($1), tin_verified_at = null", OTHER)
    apis = [await start(company, TIN_VERIFICATION="automatic") for company in companies]
    answers = await asyncio.gather(*[put(api, tin_code=OTHER) for api in apis])
    assert sorted(status for status, _ in answers) == [200] + [409] * (AT_ONCE - 1)
    assert [body for status, body in answers if status == 409] == [TAKEN] * (AT_ONCE - 1)


async def test_concurrent_adding_and_verification_have_one_winner(
    rivals: list[tuple[Company, Client]], config: Config
) -> None:
    async with connected_pool(config.database_url, 4) as pool:
        facts = {**DEMO_COMPANY, "tin_code": OTHER}
        made: list[Any] = await asyncio.gather(
            add_company(config, Database(pool), **facts),
            *(run_command(config, verify_tin, company.id) for company, _ in rivals),
            return_exceptions=True,
        )
    refused = [getattr(one, "constraint_name", one) for one in made if isinstance(one, Exception)]
    assert refused == ["companies_tin_once"] * 2


async def test_a_released_tin_can_be_claimed_and_verified_again(
    rivals: list[tuple[Company, Client]], config: Config
) -> None:
    (winner, api), (loser, theirs) = rivals
    await run_command(config, verify_tin, winner.id)
    await update(api, tin_code="C20880059980")
    await run_command(config, verify_tin, loser.id)
    assert (await company_record(theirs))["tin_verified"] is True
    assert await put(api, tin_code="c 2088 0059990") == (409, TAKEN)
    await update(theirs, tin_code="C20880059970")
    assert (await update(api, tin_code=OTHER))["tin_verified"] is False
    await run_command(config, verify_tin, winner.id)
    assert await put(theirs, tin_code=OTHER) == (409, TAKEN)


async def test_sharing_allows_several_verifications(
    rivals: list[tuple[Company, Client]], config: Config, owner: asyncpg.Connection
) -> None:
    (first, _), (second, theirs) = rivals
    await run_command(config, share_tin, OTHER, "Two branches")
    before = await count_updates(owner, second.id)
    await run_command(config, verify_tin, first.id)
    assert await count_updates(owner, second.id) == before
    await run_command(config, verify_tin, second.id)
    await create_submitted_invoice(theirs)


async def test_a_thousand_claims_get_one_event_each(
    rivals: list[tuple[Company, Client]], config: Config, owner: asyncpg.Connection
) -> None:
    await owner.execute(CLAIM, OTHER.lower(), MANY)
    (winner, api), _ = rivals
    await run_command(config, verify_tin, winner.id)
    events = """
        select count(e.id) as events, count(*) as companies
          from companies c
          left join events e on e.company_id = c.id and e.type = 'company.updated'
         where c.name = 'Claimant'
    """
    assert tuple(await owner.fetchrow(events) or ()) == (MANY, MANY)
    await create_submitted_invoice(api)


# What a claim does not change for the company with the verified TIN


async def test_a_claim_does_not_hide_an_orphan(
    company: Company, owner: asyncpg.Connection, config: Config, other_installation: Client
) -> None:
    await add_claims(owner, company.id)
    await create_valid_invoice(other_installation, code=77, issueDateTime=now(minutes=5))
    assert (await wait_for_finding(config, "orphan"))["number"] == "INV-00077"


async def test_a_claim_is_no_company_of_the_tin(
    company: Company, owner: asyncpg.Connection, config: Config
) -> None:
    await add_claims(owner, company.id)
    async with connected_pool(config.database_url, 1) as pool, Database(pool).across() as conn:
        assert await sql.companies_of_tin(conn, wanted=OWN) == [company.id]
    assert (await run_command(config, share_tin, OWN, "Branches"))["companies"] == [company.id]
    assert (await run_command(config, unshare_tin, OWN))["unshared"] is True
