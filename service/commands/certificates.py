"""The certificates with which companies sign, and the encryption of stored secrets."""

import logging
import sys
from pathlib import Path

import asyncpg

from service.commands.command_line import CommandLine, print_json
from service.config import MAKE_SECRET_KEY, Config
from service.db.encryption import DecryptionError, Vault
from service.db.statements import sql
from service.db.transactions import Database
from service.documents.signing import certificate
from service.errors import OperatorError
from service.json_types import JsonObject
from service.submission import signers

log = logging.getLogger(__name__)


def register(line: CommandLine) -> None:
    parser = line.add("set-certificate", set_certificate)
    parser.add_argument(
        "--issuer-form",
        choices=certificate.ISSUER_FORMS,
        default=certificate.DEFAULT_FORM,
        help="how signatures write the issuer's name",
    )
    line.add("reseal", _reseal)


async def set_certificate(
    config: Config, database: Database, company_id: int, issuer_form: str, **files: Path | None
) -> JsonObject:
    """Store the certificate (PEM) with which a company's documents are signed.

    Prints it, with a `warning` if there is one.
    """
    texts = {name: path and path.read_text("utf-8", "replace") for name, path in files.items()}
    password = texts["password_file"]
    if password is not None:
        password = password.removesuffix("\n").removesuffix("\r")
    vault = _open_vault(config, "the private key is encrypted with it")
    async with database.company(company_id) as conn:
        await sql.company_lock(conn)
        now = await sql.database_now(conn)
        signer = certificate.read_pair(
            texts["certificate"] or "",
            texts["key"] or "",
            password,
            issuer_form=issuer_form,
            now=now,
        )
        await signers.store(conn, vault, company_id, signer, issuer_form)
        record = await signers.stored(conn)
        assert record is not None
        return record


async def _reseal(config: Config, database: Database) -> None:
    """Encrypt all stored secrets with the current `SECRET_KEY`.

    Exit code 1 if any cannot be decrypted.
    """
    done = await reencrypt_all(config, database)
    print_json(done)
    sys.exit(1 if done["unopenable"] else 0)


async def reencrypt_all(config: Config, database: Database) -> dict[str, int]:
    """Encrypt all secrets with the first key of the vault, and return {sealed, unopenable}.

    `sealed` counts the secrets that were encrypted again, `unopenable` those that no key decrypts.
    Raises OperatorError without SECRET_KEY.
    """
    vault = _open_vault(config, "secrets are encrypted with it")
    rows = await database.call(sql.secrets_to_seal, version=vault.version)
    done = [await _reencrypt(database, vault, row) for row in rows]
    return {"sealed": sum(done), "unopenable": len(done) - sum(done)}


async def _reencrypt(database: Database, vault: Vault, row: asyncpg.Record) -> bool:
    company_id, kind, secret_id = row["company_id"], row["kind"], row["id"]
    try:
        secret = vault.open(row["sealed"], company_id, kind)
    except DecryptionError as error:
        facts = (kind, secret_id, company_id, error)
        log.error("secrets: the %s %d of company %d cannot be decrypted: %s", *facts)
        return False
    sealed = vault.seal(secret, company_id, kind)
    async with database.company(company_id) as conn:
        await sql.secret_seal(conn, kind=kind, id=secret_id, sealed=sealed)
    return True


def _open_vault(config: Config, reason: str) -> Vault:
    """Return the vault of the configured keys. Raises OperatorError without SECRET_KEY."""
    if not config.secret_key:
        raise OperatorError(f"SECRET_KEY is missing: {reason}. {MAKE_SECRET_KEY}")
    return Vault(config.secret_key, config.secret_key_previous)
