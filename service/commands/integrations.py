"""Accounts of the integration surface, their keys and organizations."""

from collections.abc import Iterable

from service import schema
from service.api.integrations import ORGANIZATION, new_id
from service.commands.command_line import CommandLine
from service.commands.companies import read_expiry, reject_violations, require_company
from service.config import Config
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import OperatorError
from service.http import api_keys
from service.json_types import JsonObject


def register(line: CommandLine) -> None:
    line.add("add-integration-key", add_integration_key)
    line.add("add-organization", add_organization)


async def add_integration_key(
    config: Config, database: Database, account: str, name: str = "", expires: str | None = None
) -> JsonObject:
    """Create a key of the integration surface and print it, once.

    Creates the account if it is new.
    """
    expires_at = read_expiry(expires)
    key = api_keys.new_key(config.has_live_portal, api_keys.INTEGRATION, config.cell)
    account_id = await _get_or_insert_account(database, account)
    async with database.account(account_id) as conn:
        await api_keys.insert_key(conn, key, name, expires_at)
    return {"key": key.text, "key_id": key.key_id, "account_id": account_id}


async def add_organization(
    config: Config, database: Database, account: str, name: str, companies: Iterable[int] = ()
) -> JsonObject:
    """Create an organization, optionally linked to companies, and print the id."""
    reject_violations(schema.find_violations("integration_organization_update", {"name": name}))
    account_id = await _find_account(database, account)
    linked = sorted(set(companies))
    for company_id in linked:
        await require_company(database, company_id)
    key = {"account_id": account_id, "id": new_id(ORGANIZATION)}
    async with database.account(account_id) as conn:
        await sql.organization_insert(conn, **key, name=name, companies=linked)
    return key


async def _find_account(database: Database, name: str) -> int:
    account_id = await database.call(sql.account_named, wanted=name)
    if account_id is None:
        raise OperatorError(f"There is no account {name}; add-integration-key creates one.")
    return account_id


async def _get_or_insert_account(database: Database, name: str) -> int:
    """Return the id of an account, which a concurrent command may create."""
    if not name.strip():
        raise OperatorError("An account needs a name.")
    if found := await database.call(sql.account_named, wanted=name):
        return found
    account_id = await database.call(sql.owner_id_next, owners="accounts")
    async with database.account(account_id) as conn:
        inserted = await sql.account_insert(conn, name=name)
    return inserted or await _find_account(database, name)
