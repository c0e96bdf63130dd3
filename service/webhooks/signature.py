"""Secrets and signatures of deliveries, as specified by Standard Webhooks 1.0."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def shown(secret: bytes) -> str:
    """Return a secret in the form that the company gets."""
    return PREFIX + base64.b64encode(secret).decode()


def headers(event_id: int, timestamp: int, body: str, keys: Iterable[bytes]) -> dict[str, str]:
    """Return the headers of an attempt at `timestamp` (Unix seconds), signed with each key."""
    message_id = f"evt_{event_id}"
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(key, message_id, timestamp, body) for key in keys),
    }


def sign(key: bytes, message_id: str, timestamp: int, body: str) -> str:
    """Return a version 1 signature."""
    digest = hmac.digest(key, f"{message_id}.{timestamp}.{body}".encode(), hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"
