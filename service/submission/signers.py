"""Which certificate signs a company's documents, and the signing, off the event loop. Portal: 11

A company's own certificate comes before the configured one. Its key lies sealed in the database, and is kept open in
memory for a short time only.
"""

import asyncio
import logging
import time
from collections import OrderedDict

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from service.config import ConfigError
from service.db.encryption import SIGNING_KEY, DecryptionError, Vault
from service.db.statements import sql
from service.documents import states
from service.documents.signing import certificate, signature
from service.documents.ubl import document
from service.errors import BadRequest
from service.offload import offload

SIGNED_VERSIONS = {"1.1"}
CHARACTERS_OF_A_LINE = 800  # at least, in a document's JSON
MOST_WARNED = 10_000  # certificates of which it is remembered that the log was told

NO_CERTIFICATE = {
    "code": "DS301",
    "path": certificate.PATH,
    "message": "There is no certificate to sign the document with: the company has none, and none is configured.",
}
UNREADABLE = {
    "code": "SigningKeyUnreadable",
    "path": certificate.PATH,
    "message": "The company's signing key cannot be opened with the SECRET_KEY of the service; set the certificate again.",
}

log = logging.getLogger(__name__)


class Signers:
    """The signers of one process: at most `most_open` companies' keys are open, each for `open_seconds`.

    Raises ConfigError when the configured files hold no usable certificate and key.
    """

    def __init__(self, config, *, most_open=256, open_seconds=300):
        self._signs = config.portal_document_version in SIGNED_VERSIONS
        self.vault = Vault(config.secret_key, config.secret_key_previous)
        self._configured = configured(config)
        self._most_open, self._open_seconds = most_open, open_seconds
        self._open = OrderedDict()  # (company, certificate's id) -> (until when, signer)
        self._warned = {}  # der of a certificate -> the day on which the log was last told

    async def content(self, conn, company, issuer, built):
        """The bytes to send of what `document.build` gave: signed, where its version is. Raises BadRequest.

        `issuer` is the company's record with the database's `now`, which is the signing time.
        """
        if not self._signs:
            return await offload(
                CHARACTERS_OF_A_LINE * len(built["Invoice"][0]["InvoiceLine"]),
                document.encode,
                built,
            )
        row = await sql.signing_certificate_get(conn, company_id=company)
        refuse(self._refusals(self._certificate(row), issuer["now"]))
        signer = await self.opened(conn, company, row) if row else self._configured
        self._tell(company, signer.certificate, issuer["now"])
        return await asyncio.to_thread(signature.sign, built, signer, issuer["now"])

    async def outlook(self, conn, company, issuer):
        """(errors, warnings) for a document that would be signed now; without a signature there is nothing to say."""
        if not self._signs:
            return [], []
        row = await sql.signing_certificate_get(conn, company_id=company)
        found = self._certificate(row)
        if errors := self._refusals(found, issuer["now"]):
            return errors, []
        return [], certificate.warnings(found, issuer["now"], issuer if row else None)

    def _certificate(self, row):
        """The certificate of a stored row, else the configured one, else None."""
        return of_row(row) if row else self._configured and self._configured.certificate

    def _refusals(self, found, now):
        if found is None:
            return [NO_CERTIFICATE]
        outside = certificate.outside_validity(found, now)
        return [outside] if outside else []

    async def opened(self, conn, company, row):
        """The company's signer, from memory where it was opened a short while ago. Raises BadRequest."""
        place, now = (company, row["id"]), time.monotonic()
        until, signer = self._open.get(place, (0, None))
        if until < now:
            sealed = await sql.signing_certificate_key(conn, company_id=company, id=row["id"])
            refuse([] if sealed else [NO_CERTIFICATE])  # removed a moment ago
            signer = await asyncio.to_thread(self._unsealed, company, row, sealed)
            self._open[place] = now + self._open_seconds, signer
            self._open.move_to_end(place)
            self._forget(now)
        return signer

    def _unsealed(self, company, row, sealed):
        try:
            der = self.vault.open(sealed, company, SIGNING_KEY)
        except DecryptionError as why:
            log.error("signing: the key of company %d cannot be opened: %s", company, why)
            refuse([UNREADABLE])
        # It was looked at closely before it was sealed, which takes ten times as long as a
        # signature.
        key = load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
        return certificate.Signer(of_row(row), key)

    def _forget(self, now):
        """Drops what was open for long enough, and the oldest of what is too much."""
        while self._open and (
            len(self._open) > self._most_open or next(iter(self._open.values()))[0] < now
        ):
            self._open.popitem(last=False)

    def _tell(self, company, found, now):
        """Says in the log that a certificate is about to expire, once a day."""
        for warning in certificate.warnings(found, now):
            if self._warned.get(found.der) != now.date():
                if len(self._warned) >= MOST_WARNED:
                    self._warned.clear()
                self._warned[found.der] = now.date()
                log.warning("signing: company=%d %s", company, warning)


def refuse(errors):
    """Raises the BadRequest of a submission that cannot go for these reasons, if there are any."""
    if errors:
        raise BadRequest(states.SUBMIT_FAILED, errors=errors, retryable=False)


def configured(config):
    """The Signer of the configured files, None without them. Raises ConfigError."""
    if not config.signing_certificate_file:
        return None
    own = _read(config.signing_certificate_file, "SIGNING_CERTIFICATE_FILE")
    key = _read(config.signing_key_file, "SIGNING_KEY_FILE")
    try:
        return certificate.read_pair(
            own, key, config.signing_key_password, issuer_form=config.signing_issuer_form
        )
    except certificate.Unusable as why:
        lines = [f"{VARIABLE_OF[each['path']]}: {each['message']}" for each in why.faults]
        raise ConfigError("\n".join(lines)) from None


VARIABLE_OF = {
    "/certificate": "SIGNING_CERTIFICATE_FILE",
    "/key": "SIGNING_KEY_FILE",
    "/password": "SIGNING_KEY_PASSWORD",
}


def _read(file, variable):
    try:
        return file.read_text("utf-8", errors="replace")
    except OSError as fault:
        raise ConfigError(f"{variable} cannot be read: {fault.strerror}") from None


# What a company has stored


async def store(conn, vault, company, signer, issuer_form):
    """Keeps a company's signer in place of the one it had. The company is locked. Raises NoSecretKey."""
    der = signer.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    sealed = vault.seal(der, company, SIGNING_KEY)
    await sql.signing_certificate_remove(conn, company_id=company)
    await sql.signing_certificate_insert(
        conn,
        company_id=company,
        certificate=signer.certificate.der,
        subject=signer.certificate.subject,
        issuer_form=issuer_form,
        not_before=signer.certificate.not_before,
        not_after=signer.certificate.not_after,
        sealed_key=sealed,
    )


async def stored(conn, company):
    """The record of a company's own certificate, None when it has none."""
    row = await sql.signing_certificate_get(conn, company_id=company)
    if row is None:
        return None
    issuer = await sql.issuer_get(conn, company_id=company)
    return certificate.record(of_row(row), issuer["now"], issuer)


def of_row(row):
    return certificate.of_der(row["certificate"], row["issuer_form"])
