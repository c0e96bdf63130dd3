"""Encryption at rest: a secret opens only with its key, for its company and its purpose."""

import base64
from typing import Any

import pytest

from service.config import ConfigError, read_config
from service.db.encryption import DecryptionError, MissingSecretKey, Vault

OLD, NEW = b"o" * 32, bytes(range(32))
SECRET = b"-- a private key --"


def test_an_encrypted_secret_opens_and_is_unreadable() -> None:
    vault = Vault(NEW)
    sealed = vault.seal(SECRET, 7, "signing key")
    assert vault.open(sealed, 7, "signing key") == SECRET and SECRET not in sealed
    assert vault.seal(SECRET, 7, "signing key") != sealed


@pytest.mark.parametrize(
    "company, purpose", [(8, "signing key"), (7, "portal secret"), (77, "signing key"), (7, "")]
)
def test_a_secret_opens_only_for_its_company_and_purpose(company: int, purpose: str) -> None:
    vault = Vault(NEW)
    with pytest.raises(DecryptionError):
        vault.open(vault.seal(SECRET, 7, "signing key"), company, purpose)


def test_a_modified_secret_does_not_open() -> None:
    vault = Vault(NEW)
    sealed = vault.seal(SECRET, 7, "signing key")
    changed = [
        sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(len(sealed))
    ]
    for other in [*changed, b"", sealed[:-1], sealed[:16], sealed + b"\0"]:
        with pytest.raises(DecryptionError):
            vault.open(other, 7, "signing key")


def test_a_previous_key_decrypts_and_no_longer_encrypts() -> None:
    sealed = Vault(OLD).seal(SECRET, 7, "signing key")
    rotated, old_version = Vault(NEW, OLD), Vault(OLD).version
    assert old_version
    assert rotated.open(sealed, 7, "signing key") == SECRET
    assert rotated.seal(SECRET, 7, "signing key")[:4] == rotated.version == Vault(NEW).version
    with pytest.raises(
        DecryptionError,
        match=f"encrypted with the secret key {old_version.hex()}, which is not set",
    ):
        Vault(NEW).open(sealed, 7, "signing key")


def test_encryption_without_a_key_is_refused() -> None:
    with pytest.raises(MissingSecretKey):
        Vault(b"", b"").seal(SECRET, 7, "signing key")


# Configuration


def text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_secret_keys_are_read_and_hidden_in_the_repr() -> None:
    config = read_config(
        {"SECRET_KEY": text(NEW), "SECRET_KEY_PREVIOUS": text(OLD), "SIGNING_KEY_PASSWORD": "hush"}
    )
    assert (config.secret_key, config.secret_key_previous) == (NEW, OLD)
    assert text(OLD) not in repr(config)
    assert repr(OLD) not in repr(config)
    assert "hush" not in repr(config)
    assert read_config({}).secret_key == b""


@pytest.mark.parametrize("wrong", ["hush", text(b"o" * 31), text(NEW)[:-1] + "!", "\u00fc" * 44])
def test_an_invalid_secret_key_is_refused_with_instructions(wrong: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^SECRET_KEY must be 32 random bytes in base64. Make one with: python3 -c ",
    ) as why:
        read_config({"SECRET_KEY": wrong})
    assert wrong not in str(why.value)


@pytest.mark.parametrize(
    "given, missing",
    [
        (
            {"SECRET_KEY_PREVIOUS": text(OLD)},
            "SECRET_KEY is missing: SECRET_KEY_PREVIOUS is set.*Make one with",
        ),
        (
            {"SIGNING_KEY_FILE": "key.pem"},
            "SIGNING_CERTIFICATE_FILE is missing: SIGNING_KEY_FILE is set",
        ),
        (
            {"SIGNING_CERTIFICATE_FILE": "own.pem"},
            "SIGNING_KEY_FILE is missing: SIGNING_CERTIFICATE_FILE is set",
        ),
    ],
)
def test_variables_that_belong_together_are_required_together(
    given: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ConfigError, match=missing):
        read_config(given)
