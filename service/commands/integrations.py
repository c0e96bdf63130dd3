"""Accounts of the integration surface, their keys, users and organizations."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import asyncpg

from service import schema
from service.api.integrations import new_organization_id, new_user_id
from service.commands.bootstrap import with_database
from service.commands.command_line import CommandLine
from service.commands.companies import CommandError, add_key_options, read_instant
from service.config import Config, read_config
from service.db.statements import sql
from service.db.transactions import Database
from service.http import api_keys


def register(line: CommandLine) -> None:
    """Add the commands."""
    parser = line.add(
        "add-integration-key",
        lambda options: add_integration_key(
            read_config(), options.account, options.name, options.expires
        ),
        "Create a key of the integration surface and print it, once. "
        "Creates the account if it is new.",
    )
    parser.add_argument("--account", required=True, metavar="NAME", help="the account's name")
    add_key_options(parser)
    parser = line.add(
        "add-user",
        lambda options: add_user(
            read_config(),
            options.account,
            name=options.name,
            email=options.email,
            role=options.role,
        ),
        "Create a user of an account and print the id.",
    )
    for name in ("account", "name", "email", "role"):
        parser.add_argument(f"--{name}", required=True)
    parser = line.add(
        "add-organization",
        lambda options: add_organization(
            read_config(), options.account, options.name, options.company
        ),
        "Create an organization, optionally linked to companies, and print the id.",
    )
    for name in ("account", "name"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument(
        "--company",
        type=int,
        action="extend",
        nargs="+",
        default=[],
        metavar="ID",
        help="the ids of its companies",
    )


async def add_integration_key(
    config: Config, account: str, name: str = "", expires: str | None = None
) -> dict[str, Any]:
    """Create a key of an account and return {key, key_id, account_id}. Raises CommandError.

    Creates the account if there is none of that name.
    """
    async with with_database(config) as (config, database):
        return await insert_integration_key(config, database, account, name, read_instant(expires))


async def insert_integration_key(
    config: Config,
    database: Database,
    account: str,
    name: str = "",
    expires_at: datetime | None = None,
) -> dict[str, Any]:
    """Create a key of an account and return {key, key_id, account_id}. Raises CommandError."""
    key = api_keys.new_key(config.has_live_portal, api_keys.INTEGRATION, config.cell)
    account_id = await _get_or_insert_account(database, account)
    async with database.account(account_id) as conn:
        await api_keys.insert_key(conn, account_id, key, name, expires_at)
    return {"key": key.text, "key_id": key.key_id, "account_id": account_id}


async def add_user(config: Config, account: str, **facts: str) -> dict[str, Any]:
    """Create a user and return {id, account_id}. `facts` are name, email and role.

    Raises CommandError, also for an e-mail address that is in use.
    """
    _reject_violations("integration_user_create", facts)
    async with with_database(config) as (config, database):
        account_id, user_id = await _find_account(database, account), new_user_id()
        try:
            async with database.account(account_id) as conn:
                await sql.integration_user_insert(conn, account_id=account_id, id=user_id, **facts)
        except asyncpg.UniqueViolationError:
            raise CommandError(
                f"A user of {account} has the e-mail address {facts['email']}."
            ) from None
        return {"id": user_id, "account_id": account_id}


async def add_organization(
    config: Config, account: str, name: str, companies: Iterable[int] = ()
) -> dict[str, Any]:
    """Create an organization and return {id, account_id}.

    Raises CommandError for an unknown account or company.
    """
    _reject_violations("integration_organization_update", {"name": name})
    async with with_database(config) as (config, database):
        account_id = await _find_account(database, account)
        return await insert_organization(database, account_id, name, companies)


async def insert_organization(
    database: Database, account_id: int, name: str, companies: Iterable[int] = ()
) -> dict[str, Any]:
    """Create an organization and return {id, account_id}. Raises CommandError."""
    organization_id, linked = new_organization_id(), sorted(set(companies))
    for company_id in linked:
        await _reject_unknown_company(database, company_id)
    key = {"account_id": account_id, "id": organization_id}
    async with database.account(account_id) as conn:
        await sql.organization_insert(conn, **key, name=name)
        await sql.organization_link(conn, **key, companies=linked)
    return {"id": organization_id, "account_id": account_id}


async def _find_account(database: Database, name: str) -> int:
    async with database.across() as conn:
        account_id = await sql.account_named(conn, name=name)
    if account_id is None:
        raise CommandError(f"There is no account {name}; add-integration-key creates one.")
    return account_id


async def _get_or_insert_account(database: Database, name: str) -> int:
    """Return the id of an account, which a concurrent command may create."""
    if not name.strip():
        raise CommandError("An account needs a name.")
    async with database.across() as conn:
        if found := await sql.account_named(conn, name=name):
            return found
        account_id = await sql.account_id_next(conn)
    async with database.account(account_id) as conn:
        inserted = await sql.account_insert(conn, account_id=account_id, name=name)
    return inserted or await _find_account(database, name)


async def _reject_unknown_company(database: Database, company_id: int) -> None:
    async with database.company(company_id) as conn:
        if not await sql.company_exists(conn, company_id=company_id):
            raise CommandError(f"There is no company {company_id}.")


def _reject_violations(name: str, body: Mapping[str, Any]) -> None:
    if found := schema.find_violations(name, body):
        raise CommandError(" ".join(violation["message"] for violation in found))
