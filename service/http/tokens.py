"""Random tokens of sessions and links, of which only the digest is stored."""

import hashlib
import secrets

TOKEN_BYTES = 32


def make_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
