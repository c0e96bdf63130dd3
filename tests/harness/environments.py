"""The environment variables of a service on a database and a sandbox."""

import base64

SANDBOX_CLIENT = {
    "PORTAL_CLIENT_ID": "sandbox-client",
    "PORTAL_CLIENT_SECRET": "sandbox-secret",
    "PORTAL_INTERMEDIARY": "true",
}

#: The times of a submission, scaled down from minutes to fractions of a second.
SCALED = {
    "PORTAL_CONNECT_TIMEOUT_SECONDS": "3",
    "PORTAL_TIMEOUT_SECONDS": "5",
    "PORTAL_LEASE_SECONDS": "8",
    "PORTAL_SETTLE_SECONDS": "0.4",
    "PORTAL_CONFIRMATION_GAP_SECONDS": "0.1",
    "PORTAL_POLL_SECONDS": "0.05",
    "PORTAL_POLL_MAX_SECONDS": "0.2",
    "PORTAL_RETRY_SECONDS": "0.05",
    "PORTAL_LOGIN_RETRY_SECONDS": "0.2",
    "PORTAL_BATCH_SECONDS": "0.05",
    "PORTAL_RATE_SCALE": "0",
    "SUBMIT_WAIT_SECONDS": "5",
    # A busy machine is slow. Tests about pressure set their own values.
    "DATABASE_ACQUIRE_SECONDS": "30",
    "DATABASE_ANSWER_SECONDS": "20",
    "WRONG_KEYS_PER_MINUTE": "0",
    "TIN_CHECKS_PER_MINUTE": "0",
    "LOG_LEVEL": "WARNING",
    "DATABASE_DURABILITY": "off",
}

#: Variables of a service in which every resource can be created on any day, without limits.
GENEROUS = {
    "CONSOLIDATION_DAYS": "40",
    "WEBHOOK_ALLOW_INTERNAL": "true",
    "REQUESTS_PER_MINUTE": "0",
    "INTEGRATION_REQUESTS_PER_MINUTE": "10000000",
    "SECRET_KEY": base64.b64encode(b"k" * 32).decode(),
}


def make_environment(database: str, portal: str) -> dict[str, str]:
    """Return the variables of a service whose times are those of production."""
    return {
        "DATABASE_URL": database,
        "DATABASE_OWNER_URL": "",
        "DATABASE_DURABILITY": "off",
        "PORTAL_API_BASE": portal,
        "PORTAL_IDENTITY_BASE": portal,
        "PORTAL_WEB_BASE": portal,
        **SANDBOX_CLIENT,
    }


def variables(database: str, portal: str) -> dict[str, str]:
    """Return the variables of a service with the scaled times."""
    return {**make_environment(database, portal), **SCALED}
