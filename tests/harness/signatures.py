"""Signatures of webhooks, as a receiver verifies them."""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping

LONGEST_SECONDS = 300  # between the timestamp of a request and the local time


def is_signed_by(headers: Mapping[str, str], body: str, secret: str) -> bool:
    """Return whether a request is signed with a secret, as Standard Webhooks specifies."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    sent_at = int(headers["webhook-timestamp"])
    text = f"{headers['webhook-id']}.{sent_at}.{body}"
    expected = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    given = [part.split(",", 1) for part in headers["webhook-signature"].split(" ")]
    return ["v1", expected] in given and abs(time.time() - sent_at) < LONGEST_SECONDS
