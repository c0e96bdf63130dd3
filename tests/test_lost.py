"""A submission that the portal accepted and then does not know: looked for by number, shown to a person, never sent again."""

import pytest
from kit import created, submitted

from service import wire
from service.portal.client import Refused
from service.statements import sql
from service.submission import lost
from service.submission.desk import Claim


@pytest.fixture
async def unknown(start, company, owner):
    """Looks once for what the portal no longer knows, as long after the first time as is said: `await unknown(hours)`."""
    api = await start(company, background=False, PORTAL_UNKNOWN_SECONDS="3600")
    id = await created(api)
    assert (await submitted(api, id))[0] == 200
    desk = next(value for key, value in api.app.items() if getattr(value, "portal", None))
    why = Refused("NotFound", status=404)

    async def look(hours):
        ago = f"to_char(now() - interval '{hours} hours', 'YYYY-MM-DD\"T\"HH24:MI:SSOF')"
        await owner.execute(
            f"""update submissions set fence = fence + 1,
                  last_error = jsonb_build_object('code', 'NotFound', 'since', {ago}, 'searched_at', null)"""
        )
        async with desk.database.reading(company.id) as conn:
            row = await sql.submission_get(conn, company_id=company.id, id=1)
            known = await sql.submission_documents(conn, company_id=company.id, submission_id=1)
        claim = Claim(company.id, 1, row["fence"])
        found = await lost.by_number(desk, claim, row, known, why, desk.config.portal_poll)
        state, error = await owner.fetchrow("select state, last_error::text from submissions")
        return found, state, wire.loads(error.encode())

    return look


async def test_it_is_waited_for_then_looked_for_by_number_then_given_to_a_person(unknown, sandbox):
    before = (await sandbox.calls())["calls"].get("search", 0)
    found, state, _ = await unknown(0.5)
    assert (found, state) == ([], "Accepted") and (await sandbox.calls())["calls"].get("search", 0) == before
    found, state, _ = await unknown(1.5)
    (entry,) = await sandbox.ledger()
    assert [there.uuid for there in found] == [entry["uuid"]] and state == "Accepted"
    await sandbox.settings(search_lag_seconds=3600)
    found, state, error = await unknown(1.5)
    assert (found, state) == ([], "Accepted") and error["searched_at"]
    found, state, _ = await unknown(25)
    assert (found, state) == ([], "NeedsPerson")
    assert len(await sandbox.ledger()) == 1
