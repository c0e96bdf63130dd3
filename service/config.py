"""What can be set from outside: environment variables, read once, all faults reported at once."""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

ROOT = Path(__file__).resolve().parent.parent

SECRET_KEY_BYTES = 32
SILENCE_SECONDS = 45  # unless DATABASE_SILENCE_SECONDS says otherwise
MAKE_SECRET_KEY = "Make one with: python3 -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'"


class ConfigError(Exception):
    """One line per variable that is wrong."""


@dataclass(frozen=True, slots=True)
class Config:
    """Times are timedeltas, sizes bytes, counts integers. The README's table lists every variable."""

    database_url: str  # empty: the embedded PostgreSQL under data_dir
    database_owner_url: str  # the login that migrates; empty: the same as database_url
    database_silence: int  # seconds until a connection whose other end has vanished is over
    database_acquire: timedelta  # how long a request waits for a connection
    database_answer: timedelta  # after which a connection that does not answer is dead
    data_dir: Path
    host: str
    port: int
    workers: int
    pool_size: int  # connections of one process for requests
    time_zone: ZoneInfo  # decides the year of a code and the month of a sale
    # Calendar days after a month in which its sales may be consolidated. Portal: 13
    consolidation_days: int
    max_body_bytes: int
    max_connections: int  # of one process
    head_timeout: timedelta  # for the whole of a request's head
    body_timeout: timedelta  # for the whole of its body
    stall_timeout: timedelta  # that a client may take nothing of an answer
    requests_per_minute: int  # per key and process; 0 switches it off
    tin_checks_per_minute: int  # that go to the portal, per key and process; 0 switches it off
    # Per integration key, all processes together; 0 switches it off
    integration_requests_per_minute: int
    # Per address and process, before they are refused with 429; 0 switches it off
    wrong_keys_per_minute: int
    log_level: str

    portal_api_base: str  # empty: the sandbox
    portal_identity_base: str
    portal_web_base: str
    portal_client_id: str
    portal_client_secret: str
    portal_intermediary: bool  # log in on behalf of each company's TIN
    portal_document_version: str  # 1.1 is signed
    portal_connect_timeout: timedelta
    portal_timeout: timedelta
    portal_lease: timedelta  # how long a claim holds without a sign of life
    portal_settle: timedelta  # after a send, how long absence at the portal proves nothing
    portal_proof_gap: timedelta  # between the two proofs of absence
    portal_poll: timedelta  # first interval of asking how validation went
    portal_poll_max: timedelta
    portal_recheck: timedelta  # how often a Valid document is looked at while it can be cancelled
    # How long an accepted submission may be unknown before it is looked for by number
    portal_unknown: timedelta
    portal_retry: timedelta  # first pause after a passing failure
    # First pause after a refused login of a taxpayer; it doubles up to an hour
    portal_login_retry: timedelta
    portal_batch: timedelta  # how long an automatic submission waits for others to go with it
    # The portal's quotas are multiplied by it; 0 switches our counting off
    portal_rate_scale: Decimal
    watchdog: timedelta  # how often is looked at what is overdue
    overdue: timedelta  # past the time at which something was due
    sweep: timedelta  # how often each company is compared with the portal
    submit_wait: timedelta  # how long a submit request waits for an attempt that is under way
    tin_verification: str  # operator or automatic: who verifies a TIN that a company has changed
    tin_cache: timedelta  # how long a TIN that the portal confirmed is not asked about again

    webhook_timeout: timedelta  # of one attempt to deliver; a claim holds for twice as long
    webhook_retry_scale: Decimal  # the pauses between attempts are multiplied by it
    webhook_rotation: timedelta  # how long a replaced secret signs too
    # Http, any port and internal addresses: for tests and a local sandbox only
    webhook_allow_internal: bool

    secret_key: bytes  # seals what is kept readable in the database; empty: nothing can be sealed
    secret_key_previous: bytes  # opens what was sealed before the key was replaced
    # Signs for companies that have no certificate of their own
    signing_certificate_file: Path | None
    signing_key_file: Path | None
    signing_key_password: str
    signing_issuer_form: str  # how its signatures write the issuer's name

    sandbox_port: int

    @property
    def portal_credentials_fingerprint(self) -> str:
        """Return a short hash of the portal credentials that does not reveal the secret."""
        secret, client_id = self.portal_client_secret.encode(), self.portal_client_id.encode()
        return hmac.new(secret, client_id, hashlib.sha256).hexdigest()[:8]

    def __repr__(self):
        """Names only the addresses: secrets stay out of logs and tracebacks."""
        return f"Config(host={self.host}, port={self.port}, portal={self.portal_api_base})"


def _text(value):
    return value


def _flag(value):
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if value.lower() not in words:
        raise ValueError("must be true or false")
    return words[value.lower()]


def _count(low, high):
    def read(value):
        if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    return read


def _seconds(value):
    try:
        number = Decimal(value)
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_nan() or not Decimal("0.001") <= number <= 10**7:
        raise ValueError("must be a number of seconds, at least 0.001")
    return timedelta(milliseconds=int(number * 1000))


def _scale(value):
    number = _number(value)
    if not 0 < number <= 1:
        raise ValueError("must be a number above 0, at most 1")
    return number


def _rate(value):
    number = _number(value)
    if not 0 <= number <= 1000:
        raise ValueError("must be a number from 0 to 1000")
    return number


def _number(value):
    """A Decimal; -1 for what is none."""
    try:
        number = Decimal(value)
    except InvalidOperation:
        return Decimal(-1)
    return number if number.is_finite() else Decimal(-1)


def _one_of(*allowed):
    def read(value):
        if value not in allowed:
            raise ValueError("must be one of " + ", ".join(filter(None, allowed)))
        return value

    return read


def _zone(value):
    try:
        return ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        raise ValueError("must be a time zone, like Asia/Kuala_Lumpur") from None


def _secret_key(value):
    try:
        key = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        key = b"?"
    if len(key) not in (0, SECRET_KEY_BYTES):
        raise ValueError(f"must be {SECRET_KEY_BYTES} random bytes in base64. {MAKE_SECRET_KEY}")
    return key


def _file(value):
    return Path(value) if value else None


def _base(value):
    if value and not value.startswith(("http://", "https://")):
        raise ValueError("must be an address that starts with https:// or http://")
    return value.rstrip("/")


#: field -> (variable, default, reader). The README's table is checked against it.
VARIABLES = {
    "database_url": ("DATABASE_URL", "", _text),
    "database_owner_url": ("DATABASE_OWNER_URL", "", _text),
    "database_silence": ("DATABASE_SILENCE_SECONDS", str(SILENCE_SECONDS), _count(3, 300)),
    "database_acquire": ("DATABASE_ACQUIRE_SECONDS", "2", _seconds),
    "database_answer": ("DATABASE_ANSWER_SECONDS", "1", _seconds),
    "data_dir": ("DATA_DIR", str(ROOT / ".data"), Path),
    "host": ("HOST", "127.0.0.1", _text),
    "port": ("PORT", "8080", _count(0, 65535)),
    "workers": ("WORKERS", "1", _count(1, 64)),
    "pool_size": ("POOL_SIZE", "16", _count(2, 200)),
    "time_zone": ("TIME_ZONE", "Asia/Kuala_Lumpur", _zone),
    "consolidation_days": ("CONSOLIDATION_DAYS", "7", _count(0, 366)),
    "max_body_bytes": ("MAX_BODY_BYTES", str(2 * 1024 * 1024), _count(1024, 64 * 1024 * 1024)),
    "max_connections": ("MAX_CONNECTIONS", "1000", _count(1, 100_000)),
    "head_timeout": ("REQUEST_HEAD_SECONDS", "10", _seconds),
    "body_timeout": ("REQUEST_BODY_SECONDS", "20", _seconds),
    "stall_timeout": ("ANSWER_STALL_SECONDS", "60", _seconds),
    "requests_per_minute": ("REQUESTS_PER_MINUTE", "6000", _count(0, 10**7)),
    "tin_checks_per_minute": ("TIN_CHECKS_PER_MINUTE", "20", _count(0, 10**7)),
    "integration_requests_per_minute": ("INTEGRATION_REQUESTS_PER_MINUTE", "120", _count(0, 10**7)),
    "wrong_keys_per_minute": ("WRONG_KEYS_PER_MINUTE", "300", _count(0, 10**7)),
    "log_level": ("LOG_LEVEL", "INFO", _one_of("DEBUG", "INFO", "WARNING", "ERROR")),
    "portal_api_base": ("PORTAL_API_BASE", "", _base),
    "portal_identity_base": ("PORTAL_IDENTITY_BASE", "", _base),
    "portal_web_base": ("PORTAL_WEB_BASE", "", _base),
    "portal_client_id": ("PORTAL_CLIENT_ID", "", _text),
    "portal_client_secret": ("PORTAL_CLIENT_SECRET", "", _text),
    "portal_intermediary": ("PORTAL_INTERMEDIARY", "false", _flag),
    "portal_document_version": ("PORTAL_DOCUMENT_VERSION", "1.0", _one_of("1.0", "1.1")),
    "portal_connect_timeout": ("PORTAL_CONNECT_TIMEOUT_SECONDS", "5", _seconds),
    "portal_timeout": ("PORTAL_TIMEOUT_SECONDS", "25", _seconds),
    "portal_lease": ("PORTAL_LEASE_SECONDS", "60", _seconds),
    "portal_settle": ("PORTAL_SETTLE_SECONDS", "360", _seconds),
    "portal_proof_gap": ("PORTAL_PROOF_GAP_SECONDS", "30", _seconds),
    "portal_poll": ("PORTAL_POLL_SECONDS", "3", _seconds),
    "portal_poll_max": ("PORTAL_POLL_MAX_SECONDS", "60", _seconds),
    "portal_recheck": ("PORTAL_RECHECK_SECONDS", "3600", _seconds),
    "portal_unknown": ("PORTAL_UNKNOWN_SECONDS", "3600", _seconds),
    "portal_retry": ("PORTAL_RETRY_SECONDS", "5", _seconds),
    "portal_login_retry": ("PORTAL_LOGIN_RETRY_SECONDS", "60", _seconds),
    "portal_batch": ("PORTAL_BATCH_SECONDS", "1", _seconds),
    "portal_rate_scale": ("PORTAL_RATE_SCALE", "1", _rate),
    "watchdog": ("WATCHDOG_SECONDS", "30", _seconds),
    "overdue": ("OVERDUE_SECONDS", "300", _seconds),
    "sweep": ("SWEEP_SECONDS", "3600", _seconds),
    "submit_wait": ("SUBMIT_WAIT_SECONDS", "20", _seconds),
    "tin_verification": ("TIN_VERIFICATION", "", _one_of("", "operator", "automatic")),
    "tin_cache": ("TIN_CACHE_SECONDS", "86400", _seconds),
    "webhook_timeout": ("WEBHOOK_TIMEOUT_SECONDS", "15", _seconds),
    "webhook_retry_scale": ("WEBHOOK_RETRY_SCALE", "1", _scale),
    "webhook_rotation": ("WEBHOOK_ROTATION_SECONDS", "86400", _seconds),
    "webhook_allow_internal": ("WEBHOOK_ALLOW_INTERNAL", "false", _flag),
    "secret_key": ("SECRET_KEY", "", _secret_key),
    "secret_key_previous": ("SECRET_KEY_PREVIOUS", "", _secret_key),
    "signing_certificate_file": ("SIGNING_CERTIFICATE_FILE", "", _file),
    "signing_key_file": ("SIGNING_KEY_FILE", "", _file),
    "signing_key_password": ("SIGNING_KEY_PASSWORD", "", _text),
    "signing_issuer_form": (
        "SIGNING_ISSUER_FORM",
        "rfc2253",
        _one_of("rfc2253", "encoded", "rfc2253_blanks"),
    ),
    "sandbox_port": ("SANDBOX_PORT", "8090", _count(0, 65535)),
}

#: What is set -> what else has to be: of use only together.
NEEDS = {
    "portal_api_base": (
        "portal_identity_base",
        "portal_web_base",
        "portal_client_id",
        "portal_client_secret",
    ),
    "secret_key_previous": ("secret_key",),
    "signing_certificate_file": ("signing_key_file",),
    "signing_key_file": ("signing_certificate_file",),
}

#: field -> its value when the variable is empty, from the values of all fields.
DERIVED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "tin_verification": lambda values: "operator" if values["portal_api_base"] else "automatic",
}


def read_config(environ: Mapping[str, str] = os.environ) -> Config:
    """Return the Config of an environment. Raise ConfigError with a line per variable that is wrong or missing."""
    values, faults = {}, []
    for field, (variable, default, read) in VARIABLES.items():
        try:
            values[field] = read(environ.get(variable, default).strip() or default)
        except ValueError as fault:
            faults.append(f"{variable} {fault}")
    faults += _missing(values)
    if faults:
        raise ConfigError("\n".join(faults))
    derived = {field: derive(values) for field, derive in DERIVED.items() if not values[field]}
    return Config(**{**values, **derived})


def _missing(values):
    for field, needed in NEEDS.items():
        for other in needed if values.get(field) else ():
            if other in values and not values[other]:
                variable, name = VARIABLES[other][0], VARIABLES[field][0]
                hint = f". {MAKE_SECRET_KEY}" if other == "secret_key" else ""
                yield f"{variable} is missing: {name} is set, and is of use only with it{hint}"


assert [field.name for field in fields(Config)] == list(VARIABLES)
