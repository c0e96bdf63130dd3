"""Identifiers in the forms that the portal uses. Portal: 7.3"""

import secrets
import string

UPPER = string.digits + string.ascii_uppercase
MIXED = string.digits + string.ascii_letters


def new_uuid() -> str:
    """Return an id of a document or submission: 26 characters of 0-9 and A-Z."""
    return "".join(secrets.choice(UPPER) for _ in range(26))


def new_long_id(received_at: float) -> str:
    """Return a long id of 42 characters that ends in the Unix time of receipt."""
    return f"{new_uuid()}{''.join(secrets.choice(MIXED) for _ in range(6))}{int(received_at):010d}"
