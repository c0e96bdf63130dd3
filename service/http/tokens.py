"""Random tokens of sessions and links, of which only the digest is stored."""

import hashlib
import secrets

TOKEN_BYTES = 32


def make_token() -> str:
    """Return a new random token."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: str) -> bytes:
    """Return the digest by which a token is stored."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
