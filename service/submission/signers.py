"""Signing of documents with a company's certificate, off the event loop. Portal: 11

A company's own certificate takes precedence over the configured one. Its key is encrypted in the
database, and decrypted for each signature.
"""

import asyncio
import logging
from datetime import date, datetime
from pathlib import Path
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from service.config import Config, ConfigError
from service.db.connections import Connection
from service.db.encryption import SIGNING_KEY, DecryptionError, Vault
from service.db.statements import sql
from service.documents.signing import certificate, signature
from service.documents.ubl import document
from service.errors import BadRequest, make_reason
from service.json_types import JsonObject, Row
from service.offload import offload
from service.submission.machine.failures import refuse_submission
from service.submission.machine.types import Error

SIGNED_VERSIONS = {"1.1"}
CHARACTERS_OF_A_LINE = 800  # minimum of a line item in a document's JSON
MOST_WARNED = 10_000  # certificates whose latest warning is remembered

NO_CERTIFICATE = make_reason(
    "DS301",
    "There is no certificate to sign the document with: the company has none, and none "
    "is configured.",
    certificate.PATH,
)
UNREADABLE = make_reason(
    "SigningKeyUnreadable",
    "The company's signing key cannot be decrypted with the SECRET_KEY of the service; "
    "set the certificate again.",
    certificate.PATH,
)

CANNOT_SIGN = f"The signing certificate is unusable: {certificate.OTHER_KEY}"
SELF_SIGNED = (
    "The signing certificate is self-signed; the portal rejects it with DS329, because no licensed "
    "authority has issued it."
)

log = logging.getLogger(__name__)


class Signers:
    """Signs documents. Raises ConfigError if the configured files have no usable pair."""

    def __init__(self, config: Config) -> None:
        self._signs = config.portal_document_version in SIGNED_VERSIONS
        self.vault = Vault(config.secret_key, config.secret_key_previous)
        self._configured = configured(config)
        self._needs_authority = config.has_live_portal  # The sandbox accepts any certificate.
        self._warned: dict[bytes, date] = {}  # DER certificate -> day of the latest warning

    async def content(
        self, conn: Connection, company_id: int, issuer: Row, built: JsonObject
    ) -> bytes:
        """Return the bytes to send of a built document, signed if its version requires it.

        `issuer` is the company's row with the database's `now`, which is the signing time. Raises
        BadRequest.
        """
        if not self._signs:
            return await offload(
                CHARACTERS_OF_A_LINE * len(built["Invoice"][0]["InvoiceLine"]),
                document.encode,
                built,
            )
        signer = await self._choose(conn, company_id, issuer["now"])
        self._warn(company_id, signer.certificate, issuer["now"])
        return await asyncio.to_thread(signature.sign, built, signer, issuer["now"])

    async def outlook(
        self, conn: Connection, company_id: int, issuer: Row
    ) -> tuple[list[Error], list[str]]:
        """Return the errors and warnings for a document that would be signed now."""
        if not self._signs:
            return [], []
        try:
            signer = await self._choose(conn, company_id, issuer["now"])
        except BadRequest as error:
            return error.more["errors"], []
        company = None if signer is self._configured else issuer
        return [], list(certificate.find_warnings(signer.certificate, issuer["now"], company))

    async def find_problems(
        self, conn: Connection, company_id: int, issuer: Row, names_issuer: bool
    ) -> list[str] | None:
        """Return why a document could not be signed now, or be rejected for its signature.

        None if documents are not signed. With `names_issuer`, the certificate must name the
        company, also the configured one: the portal demands it unless an intermediary submits.
        """
        if not self._signs:
            return None
        try:
            signer = await self._choose(conn, company_id, issuer["now"])
        except BadRequest as error:
            return [each["message"] for each in error.more["errors"]]
        return self._judge(signer, issuer["now"], issuer if names_issuer else None)

    def find_configured_problems(self, now: datetime) -> list[str] | None:
        """Return the same for the configured certificate. None: nothing is signed with one."""
        if not self._signs or not self._configured:
            return None
        return self._judge(self._configured, now, None)

    async def _choose(self, conn: Connection, company_id: int, now: datetime) -> certificate.Signer:
        """Return the company's own signer, or else the configured one. Raises BadRequest."""
        row = await sql.signing_certificate_get(conn)
        signer = self._decrypt(company_id, row) if row else self._configured
        if signer is None:
            _refuse(NO_CERTIFICATE)
        if error := certificate.check_validity(signer.certificate, now):
            _refuse(error)
        return signer

    def _judge(self, signer: certificate.Signer, now: datetime, company: Row | None) -> list[str]:
        """Return why the portal would reject the signatures of a signer."""
        problems = [] if signer.can_sign() else [CANNOT_SIGN]
        if self._needs_authority and certificate.is_self_signed(signer.certificate):
            problems.append(SELF_SIGNED)
        return [*problems, *certificate.find_warnings(signer.certificate, now, company)]

    def _decrypt(self, company_id: int, row: Row) -> certificate.Signer:
        """Return the company's signer. Raises BadRequest."""
        try:
            der = self.vault.open(row["sealed_key"], company_id, SIGNING_KEY)
        except DecryptionError as error:
            log.error("signing: cannot decrypt the key of company %d: %s", company_id, error)
            _refuse(UNREADABLE)
        # The key was validated before it was stored; that takes ten times as long as a signature.
        key = load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
        assert isinstance(key, RSAPrivateKey)
        return certificate.Signer(of_row(row), key)

    def _warn(self, company_id: int, found: certificate.Certificate, now: datetime) -> None:
        """Log once a day that a certificate is about to expire."""
        for warning in certificate.find_warnings(found, now):
            if self._warned.get(found.der) != now.date():
                if len(self._warned) >= MOST_WARNED:
                    self._warned.clear()
                self._warned[found.der] = now.date()
                log.warning("signing: company=%d %s", company_id, warning)


def _refuse(error: Error) -> NoReturn:
    """Raise the BadRequest of a submission that cannot be signed."""
    raise refuse_submission("check_failed", [error])


def configured(config: Config) -> certificate.Signer | None:
    """Return the signer of the configured files, or None without them. Raises ConfigError."""
    if not config.signing_certificate_file or not config.signing_key_file:
        return None
    own = _read(config.signing_certificate_file, "SIGNING_CERTIFICATE_FILE")
    key = _read(config.signing_key_file, "SIGNING_KEY_FILE")
    try:
        return certificate.read_pair(
            own, key, config.signing_key_password, issuer_form=config.signing_issuer_form
        )
    except certificate.UnusableCredentials as error:
        lines = [f"{VARIABLE_OF[each['path']]}: {each['message']}" for each in error.more["errors"]]
        raise ConfigError("\n".join(lines)) from None


VARIABLE_OF = {
    "/certificate": "SIGNING_CERTIFICATE_FILE",
    "/key": "SIGNING_KEY_FILE",
    "/password": "SIGNING_KEY_PASSWORD",
}


def _read(file: Path, variable: str) -> str:
    try:
        return file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{variable} cannot be read: {error.strerror}") from None


# A company's own certificate


async def store(
    conn: Connection, vault: Vault, company_id: int, signer: certificate.Signer, issuer_form: str
) -> None:
    """Replace a company's signer. The caller has locked the company. Raises MissingSecretKey."""
    der = signer.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    sealed = vault.seal(der, company_id, SIGNING_KEY)
    await sql.signing_certificate_remove(conn)
    await sql.signing_certificate_insert(
        conn,
        certificate=signer.certificate.der,
        subject=signer.certificate.subject,
        issuer_form=issuer_form,
        not_before=signer.certificate.not_before,
        not_after=signer.certificate.not_after,
        sealed_key=sealed,
    )


async def stored(conn: Connection) -> JsonObject | None:
    """Return the record of a company's own certificate, or None if it has none."""
    row = await sql.signing_certificate_get(conn)
    if row is None:
        return None
    issuer = await sql.issuer_get(conn)
    return certificate.make_record(of_row(row), issuer["now"], issuer)


def of_row(row: Row) -> certificate.Certificate:
    """Return the certificate of a stored row."""
    return certificate.load_certificate(row["certificate"], row["issuer_form"])
