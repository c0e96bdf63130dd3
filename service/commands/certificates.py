"""The certificates with which companies sign."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from service.commands.bootstrap import with_database
from service.commands.command_line import CommandLine, add_company_option
from service.commands.companies import CommandError
from service.config import MAKE_SECRET_KEY, Config, read_config
from service.db.connections import Connection
from service.db.encryption import MissingSecretKey, Vault
from service.db.statements import sql
from service.documents.signing import certificate
from service.submission import signers


def register(line: CommandLine) -> None:
    """Add the commands."""
    parser = line.add(
        "set-certificate",
        lambda options: set_certificate(
            read_config(),
            options.company,
            CertificateFiles(options.certificate, options.key, options.password_file),
            options.issuer_form,
        ),
        "Store the certificate (PEM) with which a company's documents are signed. "
        "Prints it, with a `warning` if there is one.",
    )
    add_company_option(parser)
    for name, required, text in (
        ("--certificate", True, "an X.509 certificate in PEM"),
        ("--key", True, "its RSA private key in PEM"),
        ("--password-file", False, "the password of an encrypted key"),
    ):
        parser.add_argument(name, type=Path, required=required, metavar="FILE", help=text)
    parser.add_argument(
        "--issuer-form",
        choices=certificate.ISSUER_FORMS,
        default=certificate.DEFAULT_FORM,
        help="how signatures write the issuer's name",
    )
    parser = line.add(
        "remove-certificate",
        lambda options: remove_certificate(read_config(), options.company),
        "Remove a company's certificate and destroy its key.",
    )
    add_company_option(parser)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a certificate, its key, and the password of an encrypted key."""

    certificate: Path
    key: Path
    password: Path | None = None


async def set_certificate(
    config: Config, company_id: int, files: CertificateFiles, issuer_form: str
) -> dict[str, Any]:
    """Store a company's certificate and key, and return its record. Raises CommandError."""
    certificate_pem, key_pem = _read_text(files.certificate), _read_text(files.key)
    password = None
    if files.password:
        password = _read_text(files.password).removesuffix("\n").removesuffix("\r")
    async with with_database(config) as (config, database), database.company(company_id) as conn:
        issuer = await _lock_company(conn, company_id)
        try:
            signer = certificate.read_pair(
                certificate_pem, key_pem, password, issuer_form=issuer_form, now=issuer["now"]
            )
            vault = Vault(config.secret_key, config.secret_key_previous)
            await signers.store(conn, vault, company_id, signer, issuer_form)
        except certificate.UnusableCredentials as error:
            raise CommandError(f"{error}") from None
        except MissingSecretKey:
            raise CommandError(
                f"SECRET_KEY is missing: the private key is encrypted with it. {MAKE_SECRET_KEY}"
            ) from None
        record = await signers.stored(conn, company_id)
        assert record is not None
        return record


async def remove_certificate(config: Config, company_id: int) -> dict[str, Any]:
    """Remove a company's certificate and return {company_id, removed}.

    `removed` is false if the company had none. Raises CommandError.
    """
    async with with_database(config) as (_, database), database.company(company_id) as conn:
        await _lock_company(conn, company_id)
        removed = await sql.signing_certificate_remove(conn, company_id=company_id)
        return {"company_id": company_id, "removed": removed is not None}


async def _lock_company(conn: Connection, company_id: int) -> asyncpg.Record:
    """Lock a company for a change and return it as an issuer. Raises CommandError."""
    if not await sql.company_lock(conn, company_id=company_id):
        raise CommandError(f"There is no company {company_id}.")
    return await sql.issuer_get(conn, company_id=company_id)


def _read_text(path: Path) -> str:
    """Return the text of a file. Raises OSError with its name."""
    return path.read_text("utf-8", errors="replace")
