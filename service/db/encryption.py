"""Secrets that have to be kept readable, sealed before they go into the database.

AES-256-GCM with the operator's key. A sealed secret names the key that it was sealed with, and opens only for the
company and the purpose that it was sealed for: copied to another row it is of no use.
"""

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: What a secret is used for: it is bound to its purpose when it is encrypted.
SIGNING_KEY = "signing key"
WEBHOOK_SECRET = "webhook secret"

_VERSION, _NONCE = 4, 12  # bytes in front of what is sealed


class MissingSecretKey(Exception):
    """There is no key to seal with."""


class DecryptionError(Exception):
    """The secret was sealed with a key that is not there, for another company or purpose, or was tampered with."""


class Vault:
    """Seals with the first of its keys, 32 bytes each, and opens with the one that a secret names; empty ones are none."""

    def __init__(self, *keys):
        self._keys = {version_of_key(key): AESGCM(key) for key in keys if key}
        self.version = next(iter(self._keys), None)

    def seal(self, secret, company_id, purpose):
        """The bytes to store. Raises NoSecretKey."""
        if self.version is None:
            raise MissingSecretKey("SECRET_KEY is not set.")
        nonce = os.urandom(_NONCE)
        return (
            self.version
            + nonce
            + self._keys[self.version].encrypt(nonce, secret, _bound(company_id, purpose))
        )

    def open(self, sealed, company_id, purpose):
        """What `seal` was given for the company and the purpose. Raises Unopenable."""
        version, nonce, kept = (
            sealed[:_VERSION],
            sealed[_VERSION : _VERSION + _NONCE],
            sealed[_VERSION + _NONCE :],
        )
        if version not in self._keys:
            raise DecryptionError(
                f"It was sealed with the secret key {version.hex()}, which is not set."
            )
        try:
            return self._keys[version].decrypt(nonce, kept, _bound(company_id, purpose))
        except (InvalidTag, ValueError):
            raise DecryptionError("It does not open with the secret key that it names.") from None


def version_of_key(key):
    """What a sealed secret says of its key: enough to tell keys apart, and nothing of the key."""
    return hashlib.sha256(b"einvoice secret key\0" + key).digest()[:_VERSION]


def _bound(company_id, purpose):
    return f"{company_id:d} {purpose}".encode()
