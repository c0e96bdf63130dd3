"""Encryption of stored secrets with the current SECRET_KEY."""

import logging
from dataclasses import dataclass

import asyncpg

from service.db.encryption import (
    PORTAL_SECRET,
    SIGNING_KEY,
    WEBHOOK_SECRET,
    DecryptionError,
    Vault,
)
from service.db.statements import Statement, sql
from service.db.transactions import Database

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SecretKind:
    """A purpose of secrets, and the statement that stores an encrypted one."""

    purpose: str
    store: Statement


KINDS = {
    WEBHOOK_SECRET: SecretKind(WEBHOOK_SECRET, sql.webhook_secret_seal),
    SIGNING_KEY: SecretKind(SIGNING_KEY, sql.signing_key_seal),
    PORTAL_SECRET: SecretKind(PORTAL_SECRET, sql.portal_secret_seal),
}


async def reencrypt_secrets(database: Database, vault: Vault) -> dict[str, int]:
    """Encrypt all secrets with the vault's first key, and return {sealed, unopenable}.

    `sealed` counts the secrets that were encrypted again, `unopenable` those that no key decrypts.
    """
    return await _seal(database, vault, vault.version)


async def encrypt_plaintext_secrets(database: Database, vault: Vault) -> None:
    """Encrypt the secrets that were stored before SECRET_KEY was set. Do nothing without a key."""
    if vault.version is not None and (done := await _seal(database, vault, None))["sealed"]:
        log.info("secrets: %d were stored in plain text, and are encrypted now", done["sealed"])


async def _seal(database: Database, vault: Vault, version: bytes | None) -> dict[str, int]:
    async with database.across() as conn:
        rows = await sql.secrets_to_seal(conn, version=version)
    done = [await _seal_one(database, vault, row) for row in rows]
    return {"sealed": sum(done), "unopenable": len(done) - sum(done)}


async def _seal_one(database: Database, vault: Vault, row: asyncpg.Record) -> bool:
    company_id, kind = row["company_id"], KINDS[row["kind"]]
    try:
        secret = row["secret"] or vault.open(row["sealed"], company_id, kind.purpose)
    except DecryptionError as error:
        log.error(
            "secrets: the %s %d of company %d cannot be decrypted: %s",
            row["kind"],
            row["id"],
            company_id,
            error,
        )
        return False
    sealed = vault.seal(secret, company_id, kind.purpose)
    async with database.company(company_id) as conn:
        await kind.store(conn, company_id=company_id, id=row["id"], sealed=sealed)
    return True
