"""The certificates that companies sign with, from the command line."""

from service.commands.bootstrap import with_database
from service.commands.companies import CommandError
from service.config import MAKE_SECRET_KEY
from service.db.encryption import MissingSecretKey, Vault
from service.db.statements import sql
from service.documents.signing import certificate
from service.submission import signers


async def set_certificate(
    config, company, certificate_file, key_file, password_file=None, issuer_form=None
):
    """The record of the certificate that the company signs with from now on. Raises CommandError."""
    texts = [_text(file) for file in (certificate_file, key_file)]
    password = _text(password_file).removesuffix("\n").removesuffix("\r") if password_file else None
    form = issuer_form or certificate.DEFAULT_FORM
    async with with_database(config) as (config, database), database.company(company) as conn:
        issuer = await _locked(conn, company)
        try:
            signer = certificate.read_pair(*texts, password, issuer_form=form, now=issuer["now"])
            vault = Vault(config.secret_key, config.secret_key_previous)
            await signers.store(conn, vault, company, signer, form)
        except certificate.Unusable as why:
            raise CommandError(f"{why}") from None
        except MissingSecretKey:
            raise CommandError(
                f"SECRET_KEY is missing: the private key is stored with it. {MAKE_SECRET_KEY}"
            ) from None
        return await signers.stored(conn, company)


async def remove_certificate(config, company):
    """{company_id, removed}; `removed` is false when the company had none. Raises CommandError."""
    async with with_database(config) as (_, database), database.company(company) as conn:
        await _locked(conn, company)
        removed = await sql.signing_certificate_remove(conn, company_id=company)
        return {"company_id": company, "removed": removed is not None}


async def _locked(conn, company):
    """The company's record, locked for a change. Raises CommandError."""
    if not await sql.company_lock(conn, company_id=company):
        raise CommandError(f"There is no company {company}.")
    return await sql.issuer_get(conn, company_id=company)


def _text(file):
    """Raises OSError, which names the file."""
    return file.read_text("utf-8", errors="replace")
