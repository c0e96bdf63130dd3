"""Secrets and signatures of deliveries, after Standard Webhooks 1.0."""

import base64
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret():
    return secrets.token_bytes(SECRET_BYTES)


def shown(secret):
    """A secret as its company keeps it."""
    return PREFIX + base64.b64encode(secret).decode()


def headers(event_id, timestamp, body, keys):
    """The three headers of an attempt at `timestamp`, in whole seconds: a signature by each of the keys."""
    id = f"evt_{event_id}"
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(key, id, timestamp, body) for key in keys),
    }


def sign(key, id, timestamp, body):
    digest = hmac.digest(key, f"{id}.{timestamp}.{body}".encode(), hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"
