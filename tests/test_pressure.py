"""PostgreSQL busy or away for a moment: a clear 503, and everything goes on by itself when it is back."""

import asyncio

from conftest import until
from kit import answered, created, reaches, record, submitted


async def test_without_a_free_connection_a_request_is_told_to_come_back_and_the_worker_lives_on(start, company, owner):
    api = await start(company, POOL_SIZE="2")
    id = await created(api)
    async with owner.transaction():
        await owner.execute("lock table invoices in access exclusive mode")
        answers = await asyncio.gather(*[api.get(f"/api/invoices/{id}") for _ in range(6)])
        assert {response.status for response in answers} == {503}
        assert all(int(response.headers["Retry-After"]) >= 1 for response in answers)
    assert (await submitted(api, id))[0] == 200
    await reaches(api, id, "Valid")


async def test_after_every_connection_was_cut_all_goes_on(api, owner, sandbox):
    id = await created(api)
    await owner.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()")
    await until(lambda: answered(api, "get", "/readyz"), lambda answer: answer[0] == 200)
    assert (await until(lambda: submitted(api, id), lambda answer: answer[0] != 503))[0] == 200
    await until(lambda: record(api, id), lambda found: found["status"] == "Valid")
    assert len(await sandbox.ledger()) == 1
