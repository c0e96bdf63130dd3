"""Seals with the present SECRET_KEY what was sealed with another, or not at all."""

import logging
from dataclasses import dataclass

from service.db.encryption import SIGNING_KEY, WEBHOOK_SECRET, DecryptionError
from service.db.statements import Statement, sql

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a secret is sealed for, and how it is stored again."""

    purpose: str
    store: Statement


KINDS = {
    WEBHOOK_SECRET: Kind(WEBHOOK_SECRET, sql.webhook_secret_seal),
    SIGNING_KEY: Kind(SIGNING_KEY, sql.signing_key_seal),
}


async def reseal(database, vault):
    """{sealed, unopenable}: how many secrets were sealed anew, and how many no key that is set opens."""
    return await _seal(database, vault, vault.version)


async def seal_plaintext_secrets(database, vault):
    """Seals the secrets that were stored before there was a SECRET_KEY; without one they stay as they are."""
    if vault.version is not None and (done := await _seal(database, vault, None))["sealed"]:
        log.info("secrets: %d were stored as they are, and are sealed now", done["sealed"])


async def _seal(database, vault, version):
    async with database.across() as conn:
        rows = await sql.secrets_to_seal(conn, version=version)
    done = [await _seal_one(database, vault, row) for row in rows]
    return {"sealed": sum(done), "unopenable": len(done) - sum(done)}


async def _seal_one(database, vault, row):
    company, kind = row["company_id"], KINDS[row["kind"]]
    try:
        secret = row["secret"] or vault.open(row["sealed"], company, kind.purpose)
    except DecryptionError as why:
        log.error(
            "secrets: the %s %d of company %d cannot be opened: %s",
            row["kind"],
            row["id"],
            company,
            why,
        )
        return False
    async with database.company(company) as conn:
        await kind.store(
            conn, company_id=company, id=row["id"], sealed=vault.seal(secret, company, kind.purpose)
        )
    return True
