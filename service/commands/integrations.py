"""Accounts, their keys, users and organizations from the command line; each command gives a dict, as companies do."""

import asyncpg

from service import schema
from service.api.integrations import new_organization_id, new_user_id
from service.commands.bootstrap import with_database
from service.commands.companies import CommandError, read_instant
from service.db.statements import sql
from service.http import api_keys


async def add_integration_key(config, account, name="", expires=None):
    """{key, key_id, account_id}; makes the account of that name when there is none. Raises CommandError."""
    async with with_database(config) as (config, database):
        return await insert_integration_key(config, database, account, name, read_instant(expires))


async def insert_integration_key(config, database, account, name="", expires_at=None):
    key = api_keys.new_key(live=bool(config.portal_api_base), kind=api_keys.INTEGRATION)
    id = await _account_made(database, account)
    async with database.account(id) as conn:
        await sql.integration_key_insert(
            conn,
            account_id=id,
            key_id=key.key_id,
            name=name,
            secret_sha256=key.digest,
            expires_at=expires_at,
        )
    return {"key": key.text, "key_id": key.key_id, "account_id": id}


async def add_user(config, account, **facts):
    """{id, account_id}. `facts` are name, email and role. Raises CommandError, also for an address in use."""
    _refuse_faults("integration_user_create", facts)
    async with with_database(config) as (config, database):
        account_id, id = await _account(database, account), new_user_id()
        try:
            async with database.account(account_id) as conn:
                await sql.integration_user_insert(conn, account_id=account_id, id=id, **facts)
        except asyncpg.UniqueViolationError:
            raise CommandError(
                f"A user of {account} has the e-mail address {facts['email']}."
            ) from None
        return {"id": id, "account_id": account_id}


async def add_organization(config, account, name, companies=()):
    """{id, account_id}. Raises CommandError for an account or a company that is not there."""
    _refuse_faults("integration_organization_update", {"name": name})
    async with with_database(config) as (config, database):
        return await insert_organization(
            database, await _account(database, account), name, companies
        )


async def insert_organization(database, account_id, name, companies=()):
    id, companies = new_organization_id(), sorted(set(companies))
    for company in companies:
        await _refuse_unknown_company(database, company)
    async with database.account(account_id) as conn:
        await sql.organization_insert(conn, account_id=account_id, id=id, name=name)
        await sql.organization_link(conn, account_id=account_id, id=id, companies=companies)
    return {"id": id, "account_id": account_id}


async def _account(database, name):
    async with database.across() as conn:
        id = await sql.account_named(conn, name=name)
    if id is None:
        raise CommandError(f"There is no account {name}; add-integration-key makes one.")
    return id


async def _account_made(database, name):
    """The id of the account of that name, which another command may make at the same time."""
    if not name.strip():
        raise CommandError("An account needs a name.")
    async with database.across() as conn:
        if id := await sql.account_named(conn, name=name):
            return id
        id = await sql.account_id_next(conn)
    async with database.account(id) as conn:
        made = await sql.account_insert(conn, account_id=id, name=name)
    return made or await _account(database, name)


async def _refuse_unknown_company(database, company):
    async with database.company(company) as conn:
        if not await sql.company_exists(conn, company_id=company):
            raise CommandError(f"There is no company {company}.")


def _refuse_faults(name, body):
    if faults := schema.violations(name, body):
        raise CommandError(" ".join(fault["message"] for fault in faults))
