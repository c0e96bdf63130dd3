"""Configuration: environment variables, read once, with all errors reported together."""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo

from service.errors import OperatorError

Network = IPv4Network | IPv6Network

ROOT = Path(__file__).resolve().parent.parent

SECRET_KEY_BYTES = 32
SILENCE_SECONDS = 45  # The default of DATABASE_SILENCE_SECONDS.
#: Parameters of a URL of PostgreSQL that name a file.
DATABASE_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MAKE_SECRET_KEY = (
    "Make one with: python3 -c "
    "'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'"
)


class ConfigError(OperatorError):
    """Invalid or missing variables, one per line."""


class Parser(NamedTuple):
    """A type of values: `read` raises an error for a text that is not what `allowed` says.

    The text of a secret can be in a file, which the variable with the suffix _FILE names.
    """

    read: Callable[[str], object]
    allowed: str
    is_secret: bool = False


class Setting(NamedTuple):
    """The environment variable of a field of Config.

    `needs` are fields that must be set if this one is. docs/configuration.md describes it.
    """

    variable: str
    default: str
    parser: Parser
    needs: tuple[str, ...] = ()

    @property
    def file_variable(self) -> str:
        """The variable with the path of a file that has the value, if it is a secret."""
        return f"{self.variable}_FILE"


def _setting(variable: str, parser: Parser, default: str = "", needs: tuple[str, ...] = ()) -> Any:
    return field(metadata={"setting": Setting(variable, default, parser, needs)})


def _integer(low: int, high: int) -> Parser:
    def read(value: str) -> int:
        if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
            raise ValueError
        return int(value)

    return Parser(read, f"a whole number from {low} to {high}")


def _number(
    allowed: str, low: str, high: int, make: Callable[[Decimal], object] = Decimal
) -> Parser:
    def read(value: str) -> object:
        if not Decimal(low) <= (number := Decimal(value)) <= high:
            raise ValueError
        return make(number)

    return Parser(read, allowed)


def _span(number: Decimal) -> timedelta:
    return timedelta(milliseconds=int(number * 1000))


def _one_of(*allowed: str) -> Parser:
    """Return the type of some words. The empty one is not shown."""
    words = {word: word for word in allowed}
    return Parser(words.__getitem__, "one of " + ", ".join(filter(None, allowed)))


def _secret_key(value: str) -> bytes:
    key = base64.b64decode(value, validate=True)
    if len(key) not in (0, SECRET_KEY_BYTES):
        raise ValueError
    return key


def _cell(value: str) -> str:
    if value and not re.fullmatch("[a-z][a-z0-9]{0,2}", value):
        raise ValueError
    return value


def _path(value: str) -> Path | None:
    return Path(value) if value else None


def _database_url(value: str) -> str:
    """Return a URL of PostgreSQL, which can name several hosts."""
    hosts = urlsplit(value).netloc.rpartition("@")[2].split(",")
    ports = [re.search(r":([^]]*)$", host) for host in hosts]
    is_valid = re.match(r"postgres(ql)?://", value) and all(
        port is None or re.fullmatch("[0-9]+", port[1]) for port in ports
    )
    if value and not is_valid:
        raise ConfigError(f"must have the form {DATABASE.allowed}")
    for name, path in parse_qsl(urlsplit(value).query):
        if name in DATABASE_FILES and not os.access(path, os.R_OK):
            raise ConfigError(f"names a file that cannot be read: {name}={path}")
    return value


def _base_url(value: str) -> str:
    """Return an address with a host, a valid port if any, and no query."""
    parts = urlsplit(value)
    is_valid = parts.hostname and parts.port != 0 and re.fullmatch(r"https?://[^\s?#]+", value)
    if value and not is_valid:
        raise ValueError
    return value.rstrip("/")


def _networks(value: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
    except ValueError as error:
        raise ConfigError(f"must be {NETWORKS.allowed}: {error}") from None


TEXT, HOST = Parser(str, "text"), Parser(str, "address")
SECRET = Parser(str, "text", is_secret=True)
CELL = Parser(_cell, "a letter and up to two letters or digits, in lower case")
DATABASE = Parser(_database_url, "postgresql://user:password@host:port/database", is_secret=True)
NETWORKS = Parser(_networks, "addresses and networks, separated by commas")
BASE_URL = Parser(_base_url, "an address with a host, like https://host or http://host:8080")
PATH = Parser(_path, "path")
PORT, COUNT = _integer(0, 65535), _integer(0, 10**7)
FLAG = Parser(lambda value: FLAGS[value.lower()], "true or false")
SPAN = _number("a number of seconds, from 0.001", "0.001", 10**7, _span)
SECONDS = _number("a number of seconds, from 0.001", "0.001", 10**7, float)
HALF_MINUTE = _number("a number of seconds from 0 to 30", "0", 30, float)
FIVE_MINUTES = _number("a number of seconds from 0 to 300", "0", 300, float)
RATE = _number("a number from 0 to 1000", "0", 1000)
SCALE = _number("a number above 0, at most 1", "1E-9", 1)
ZONE = Parser(ZoneInfo, "a time zone, like Asia/Kuala_Lumpur")
KEY = Parser(_secret_key, f"{SECRET_KEY_BYTES} random bytes in base64", is_secret=True)


@dataclass(frozen=True, slots=True, repr=False)  # Logs and tracebacks must not show secrets.
class Config:
    """The settings of the service, which docs/configuration.md describes.

    Times are timedeltas, or seconds where nothing else is needed. Sizes are bytes and counts
    integers. An empty path is None.
    """

    database_url: str = _setting("DATABASE_URL", DATABASE)
    database_owner_url: str = _setting("DATABASE_OWNER_URL", DATABASE)
    database_read_url: str = _setting("DATABASE_READ_URL", DATABASE)
    database_silence: int = _setting(
        "DATABASE_SILENCE_SECONDS", _integer(3, 300), str(SILENCE_SECONDS)
    )
    database_durability: str = _setting("DATABASE_DURABILITY", _one_of("on", "off"), "on")
    database_acquire: float = _setting("DATABASE_ACQUIRE_SECONDS", SECONDS, "2")
    database_answer: float = _setting("DATABASE_ANSWER_SECONDS", SECONDS, "1")
    cell: str = _setting("CELL", CELL)
    cell_registry: Path | None = _setting("CELL_REGISTRY", PATH, needs=("cell",))
    database_failover: float = _setting("DATABASE_FAILOVER_SECONDS", HALF_MINUTE, "0")
    data_dir: Path = _setting("DATA_DIR", PATH, str(ROOT / ".data"))
    host: str = _setting("HOST", HOST, "127.0.0.1")
    port: int = _setting("PORT", PORT, "8080")
    worker_port: int = _setting("WORKER_PORT", PORT, "0")
    public_url: str = _setting("PUBLIC_URL", BASE_URL)
    pool_size: int = _setting("POOL_SIZE", _integer(2, 200), "16")
    time_zone: ZoneInfo = _setting("TIME_ZONE", ZONE, "Asia/Kuala_Lumpur")
    consolidation_days: int = _setting("CONSOLIDATION_DAYS", _integer(0, 366), "7")
    max_body_bytes: int = _setting(
        "MAX_BODY_BYTES", _integer(1024, 64 * 1024 * 1024), str(2 * 1024 * 1024)
    )
    max_connections: int = _setting("MAX_CONNECTIONS", _integer(1, 100_000), "1000")
    head_timeout: float = _setting("REQUEST_HEAD_SECONDS", SECONDS, "10")
    body_timeout: float = _setting("REQUEST_BODY_SECONDS", SECONDS, "20")
    requests_per_minute: int = _setting("REQUESTS_PER_MINUTE", COUNT, "6000")
    tin_checks_per_minute: int = _setting("TIN_CHECKS_PER_MINUTE", COUNT, "20")
    integration_requests_per_minute: int = _setting("INTEGRATION_REQUESTS_PER_MINUTE", COUNT, "120")
    wrong_keys_per_minute: int = _setting("WRONG_KEYS_PER_MINUTE", COUNT, "300")
    trusted_proxies: tuple[Network, ...] = _setting("TRUSTED_PROXIES", NETWORKS)
    drain: float = _setting("DRAIN_SECONDS", FIVE_MINUTES, "0")
    log_level: str = _setting("LOG_LEVEL", _one_of("DEBUG", "INFO", "WARNING", "ERROR"), "INFO")
    log_format: str = _setting("LOG_FORMAT", _one_of("text", "json"), "text")
    portal_api_base: str = _setting(
        "PORTAL_API_BASE",
        BASE_URL,
        needs=(
            "portal_identity_base",
            "portal_web_base",
            "portal_client_id",
            "portal_client_secret",
        ),
    )
    portal_identity_base: str = _setting("PORTAL_IDENTITY_BASE", BASE_URL)
    portal_web_base: str = _setting("PORTAL_WEB_BASE", BASE_URL)
    portal_client_id: str = _setting("PORTAL_CLIENT_ID", TEXT)
    portal_client_secret: str = _setting("PORTAL_CLIENT_SECRET", SECRET)
    portal_intermediary: bool = _setting("PORTAL_INTERMEDIARY", FLAG, "false")
    portal_document_version: str = _setting("PORTAL_DOCUMENT_VERSION", _one_of("1.0", "1.1"), "1.0")
    portal_connect_timeout: float = _setting("PORTAL_CONNECT_TIMEOUT_SECONDS", SECONDS, "5")
    portal_timeout: timedelta = _setting("PORTAL_TIMEOUT_SECONDS", SPAN, "25")
    portal_lease: timedelta = _setting("PORTAL_LEASE_SECONDS", SPAN, "60")
    portal_settle: timedelta = _setting("PORTAL_SETTLE_SECONDS", SPAN, "360")
    portal_confirmation_gap: timedelta = _setting("PORTAL_CONFIRMATION_GAP_SECONDS", SPAN, "30")
    portal_poll: timedelta = _setting("PORTAL_POLL_SECONDS", SPAN, "3")
    portal_poll_max: timedelta = _setting("PORTAL_POLL_MAX_SECONDS", SPAN, "60")
    portal_recheck: timedelta = _setting("PORTAL_RECHECK_SECONDS", SPAN, "3600")
    portal_unknown: timedelta = _setting("PORTAL_UNKNOWN_SECONDS", SPAN, "3600")
    portal_retry: timedelta = _setting("PORTAL_RETRY_SECONDS", SPAN, "5")
    portal_login_retry: timedelta = _setting("PORTAL_LOGIN_RETRY_SECONDS", SPAN, "60")
    portal_batch: timedelta = _setting("PORTAL_BATCH_SECONDS", SPAN, "1")
    portal_rate_scale: Decimal = _setting("PORTAL_RATE_SCALE", RATE, "1")
    portal_rate_share: Decimal = _setting("PORTAL_RATE_SHARE", SCALE, "1")
    watchdog: float = _setting("WATCHDOG_SECONDS", SECONDS, "30")
    overdue: timedelta = _setting("OVERDUE_SECONDS", SPAN, "300")
    comparison: timedelta = _setting("COMPARISON_SECONDS", SPAN, "3600")
    submit_wait: float = _setting("SUBMIT_WAIT_SECONDS", SECONDS, "20")
    tin_verification: str = _setting("TIN_VERIFICATION", _one_of("", "operator", "automatic"))
    tin_cache: timedelta = _setting("TIN_CACHE_SECONDS", SPAN, "86400")
    webhook_timeout: timedelta = _setting("WEBHOOK_TIMEOUT_SECONDS", SPAN, "15")
    webhook_retry_scale: Decimal = _setting("WEBHOOK_RETRY_SCALE", SCALE, "1")
    webhook_rotation: timedelta = _setting("WEBHOOK_ROTATION_SECONDS", SPAN, "86400")
    webhook_allow_internal: bool = _setting("WEBHOOK_ALLOW_INTERNAL", FLAG, "false")
    secret_key: bytes = _setting("SECRET_KEY", KEY)
    secret_key_previous: bytes = _setting("SECRET_KEY_PREVIOUS", KEY, needs=("secret_key",))
    signing_certificate_file: Path | None = _setting(
        "SIGNING_CERTIFICATE_FILE", PATH, needs=("signing_key_file",)
    )
    signing_key_file: Path | None = _setting(
        "SIGNING_KEY_FILE", PATH, needs=("signing_certificate_file",)
    )
    signing_key_password: str = _setting("SIGNING_KEY_PASSWORD", SECRET)
    signing_issuer_form: str = _setting(
        "SIGNING_ISSUER_FORM", _one_of("rfc2253", "encoded", "rfc2253_blanks"), "rfc2253"
    )
    sandbox_port: int = _setting("SANDBOX_PORT", PORT, "8090")

    @property
    def portal_credentials_fingerprint(self) -> str:
        return fingerprint_credentials(self.portal_client_id, self.portal_client_secret)

    @property
    def has_live_portal(self) -> bool:
        """False for a sandbox: no portal is configured, or one on this machine."""
        host = urlsplit(self.portal_api_base).hostname
        return host is not None and host not in LOOPBACK


def fingerprint_credentials(client_id: str, secret: str) -> str:
    """Return a short hash of portal credentials that does not reveal the secret."""
    return hmac.new(secret.encode(), client_id.encode(), hashlib.sha256).hexdigest()[:8]


def local_address(host: str, port: int) -> str:
    """Return the URL of a listening address for programs on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


#: field of Config -> its setting
SETTINGS: dict[str, Setting] = {item.name: item.metadata["setting"] for item in fields(Config)}

#: field -> its value if the variable is empty, computed from the values of all fields
DERIVED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "tin_verification": lambda values: "operator" if values["portal_api_base"] else "automatic",
    "public_url": lambda values: local_address(values["host"], values["port"]),
}


#: Fields that describe_settings always has, besides those whose default is derived.
ADDRESSES = ("database_url", "host", "port", "worker_port", "portal_api_base")


def describe_settings(config: Config) -> dict[str, str]:
    """Return {variable: text} of the addresses and of the settings that are not the default.

    Secrets are masked, and empty settings left out.
    """
    shown: dict[str, str] = {}
    for name, setting in SETTINGS.items():
        value = getattr(config, name)
        text = _describe_value(setting, value)
        if text and (name in ADDRESSES or value != setting.parser.read(setting.default)):
            shown[setting.variable] = text
    return shown


def _describe_value(setting: Setting, value: object) -> str:
    """Return the text of a value for a log. A secret is `***`, and of a URL the place is shown."""
    if value in (None, "", b"", ()):
        return ""
    if setting.parser in (DATABASE, BASE_URL):
        return _mask_login(str(value))
    if setting.parser.is_secret:
        return "***"
    match value:
        case bool():
            return "true" if value else "false"
        case timedelta():
            return f"{value.total_seconds():.12g}"
        case float():
            return f"{value:.12g}"
        case tuple():
            return ",".join(map(str, value))
    return str(value)


def _mask_login(url: str) -> str:
    """Return a URL with a masked user and password, and without its query, which can have them."""
    parts = urlsplit(url)
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return "***"  # A character of the password may not be encoded.
    login, at, place = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{'***' if login else ''}{at}{place}{parts.path}"


def read_config(environ: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration of an environment. Raises ConfigError with a line per error."""
    values: dict[str, Any] = {}
    errors: list[str] = []
    for name, setting in SETTINGS.items():
        try:
            text = _read_text(setting, environ) or setting.default
            values[name] = setting.parser.read(text)
        except ConfigError as error:
            errors.append(f"{setting.variable} {error}")
        except (ValueError, LookupError, ArithmeticError, OSError):
            hint = f". {MAKE_SECRET_KEY}" if setting.parser is KEY else ""
            errors.append(f"{setting.variable} must be {setting.parser.allowed}{hint}")
    errors += _missing(values)
    if errors:
        raise ConfigError("\n".join(errors))
    derived = {name: derive(values) for name, derive in DERIVED.items() if not values[name]}
    return Config(**values | derived)


def _read_text(setting: Setting, environ: Mapping[str, str]) -> str:
    """Return the text of a variable, or of the file that its _FILE variable names."""
    text = environ.get(setting.variable, "").strip()
    path = environ.get(setting.file_variable, "").strip() if setting.parser.is_secret else ""
    if not path:
        return text
    if text:
        raise ConfigError(f"and {setting.file_variable} must not both be set")
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"cannot be read from {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot be read from {path}: it is not UTF-8 text") from None


def _missing(values: Mapping[str, object]) -> Iterator[str]:
    """Yield an error for each setting that another one needs."""
    for name, setting in SETTINGS.items():
        for needed in setting.needs if values.get(name) else ():
            if needed in values and not values[needed]:
                hint = f". {MAKE_SECRET_KEY}" if needed == "secret_key" else ""
                yield (
                    f"{SETTINGS[needed].variable} is missing: {setting.variable} is set "
                    f"and requires it{hint}"
                )
