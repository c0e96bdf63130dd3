"""Encryption of secrets that must be readable again, before they are stored in the database.

AES-256-GCM with the operator's key. An encrypted secret begins with the version of its key and is
bound to its company and purpose, so that a copy in another row cannot be decrypted.
"""

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from service.errors import Conflict

#: The purposes of secrets, to which they are bound.
SIGNING_KEY = "signing key"
WEBHOOK_SECRET = "webhook secret"
PORTAL_SECRET = "portal secret"

_VERSION_BYTES, _NONCE_BYTES = 4, 12


class MissingSecretKey(Conflict):
    """SECRET_KEY is not set, so nothing can be encrypted."""

    code = "encryption_not_configured"

    def __init__(self, purpose: str) -> None:
        secrets = "private keys" if purpose == SIGNING_KEY else "secrets"
        super().__init__(
            f"The service cannot store {secrets}: SECRET_KEY is not set. Ask the operator."
        )


class DecryptionError(Exception):
    """The key is not set, the secret belongs to another company or purpose, or it was changed."""


class Vault:
    """Encrypts with the first of its keys, and decrypts with the key that a secret names.

    Keys have 32 bytes; empty ones are ignored.
    """

    def __init__(self, *keys: bytes) -> None:
        self._keys: dict[bytes, AESGCM] = {version_of_key(key): AESGCM(key) for key in keys if key}
        self.version: bytes | None = next(iter(self._keys), None)

    def seal(self, secret: bytes, company_id: int, purpose: str) -> bytes:
        """Return the encrypted secret. Raises MissingSecretKey."""
        if self.version is None:
            raise MissingSecretKey(purpose)
        nonce = os.urandom(_NONCE_BYTES)
        encrypted = self._keys[self.version].encrypt(nonce, secret, _bound(company_id, purpose))
        return self.version + nonce + encrypted

    def open(self, sealed: bytes, company_id: int, purpose: str) -> bytes:
        """Return the decrypted secret of a company and purpose. Raises DecryptionError."""
        version, rest = sealed[:_VERSION_BYTES], sealed[_VERSION_BYTES:]
        nonce, encrypted = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
        if version not in self._keys:
            raise DecryptionError(
                f"It was encrypted with the secret key {version.hex()}, which is not set."
            )
        try:
            return self._keys[version].decrypt(nonce, encrypted, _bound(company_id, purpose))
        except (InvalidTag, ValueError):
            raise DecryptionError(
                "It cannot be decrypted with the secret key that it names."
            ) from None


def version_of_key(key: bytes) -> bytes:
    """Return a short hash that distinguishes keys and reveals nothing about them."""
    return hashlib.sha256(b"einvoice secret key\0" + key).digest()[:_VERSION_BYTES]


def _bound(company_id: int, purpose: str) -> bytes:
    return f"{company_id:d} {purpose}".encode()
