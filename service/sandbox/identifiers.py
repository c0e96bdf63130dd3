"""Identifiers of the forms that were seen. Portal: 7.3"""

import secrets
import string

UPPER = string.digits + string.ascii_uppercase
MIXED = string.digits + string.ascii_letters


def new_uuid():
    """26 of 0-9 and A-Z, for documents and submissions."""
    return "".join(secrets.choice(UPPER) for _ in range(26))


def new_long_id(received_at):
    """42 characters; the last ten are the Unix time of receipt."""
    return f"{new_uuid()}{''.join(secrets.choice(MIXED) for _ in range(6))}{int(received_at):010d}"
