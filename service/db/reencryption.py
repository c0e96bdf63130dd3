"""Encryption of stored secrets with the current SECRET_KEY."""

import logging

import asyncpg

from service.db.encryption import DecryptionError, Vault
from service.db.statements import sql
from service.db.transactions import Database

log = logging.getLogger(__name__)


async def reencrypt_secrets(database: Database, vault: Vault) -> dict[str, int]:
    """Encrypt all secrets with the vault's first key, and return {sealed, unopenable}.

    `sealed` counts the secrets that were encrypted again, `unopenable` those that no key decrypts.
    """
    async with database.across() as conn:
        rows = await sql.secrets_to_seal(conn, version=vault.version)
    done = [await _seal_one(database, vault, row) for row in rows]
    return {"sealed": sum(done), "unopenable": len(done) - sum(done)}


async def _seal_one(database: Database, vault: Vault, row: asyncpg.Record) -> bool:
    company_id, purpose = row["company_id"], row["kind"]
    try:
        secret = vault.open(row["sealed"], company_id, purpose)
    except DecryptionError as error:
        log.error(
            "secrets: the %s %d of company %d cannot be decrypted: %s",
            purpose,
            row["id"],
            company_id,
            error,
        )
        return False
    sealed = vault.seal(secret, company_id, purpose)
    async with database.company(company_id) as conn:
        await sql.secret_seal(
            conn, company_id=company_id, kind=purpose, id=row["id"], sealed=sealed
        )
    return True
