"""Start settings of the sandbox, and the taxpayers that are registered initially."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.x509 import Certificate

from .certificates import read_authorities

#: Initially registered taxpayers: TIN, name, identities as (type, value).
SEEDED_TAXPAYERS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("C25845632020", "Sandbox Intermediary Sdn. Bhd.", (("BRN", "201901012345"),)),
    ("C4821093650", "Perabot Seri Maju Sdn. Bhd.", (("BRN", "201801024680"),)),
    ("C20880050010", "Kopi Tiga Sdn. Bhd.", (("BRN", "202001234567"),)),
    ("C5510387420", "Tiga Rasa Restoran Sdn. Bhd.", (("BRN", "202101033579"),)),
    ("C2084716530", "Kilang Kayu Bukit Hijau Sdn. Bhd.", (("BRN", "199901012345"),)),
    ("IG40125678090", "Aminah binti Yusof", (("NRIC", "880214145566"), ("PASSPORT", "A30112233"))),
    ("IG30987654010", "Lim Chee Keong", (("NRIC", "791130075533"), ("BRN", "201903216549"))),
)

#: Environment variable -> (attribute of Settings, parser).
VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "SANDBOX_HOST": ("host", str),
    "SANDBOX_PORT": ("port", int),
    "SANDBOX_STATE": ("state", str),
    "SANDBOX_PROCESSING_SECONDS": ("processing_seconds", float),
    "SANDBOX_TOKEN_SECONDS": ("token_seconds", float),
    "SANDBOX_WEB_BASE": ("web_base", str),
    "SANDBOX_RATE_SCALE": ("rate_scale", float),
    "SANDBOX_CLIENT_ID": ("client_id", str),
    "SANDBOX_CLIENT_SECRET": ("client_secret", str),
    "SANDBOX_TIN": ("tin", str),
    "SANDBOX_TRUSTED_CA": ("authorities", read_authorities),
}
PARSE_ERRORS: dict[Callable[[str], Any], str] = {
    read_authorities: "is not a file of PEM certificates"
}


@dataclass(frozen=True)
class Settings:
    """Settings that are fixed while the process runs. `controls.Controls` holds the others."""

    host: str = "127.0.0.1"
    port: int = 8090
    state: str = ".data/sandbox.sqlite3"  # path of the SQLite file
    processing_seconds: float = 2  # from the 202 response to the end of validation
    token_seconds: float = 3600
    web_base: str = ""  # empty: http://host:port
    rate_scale: float = 1  # multiplies every rate limit; 0 disables rate limits
    client_id: str = "sandbox-client"
    client_secret: str = "sandbox-secret"
    tin: str = "C25845632020"  # taxpayer of the client without `onbehalfof`
    authorities: tuple[Certificate, ...] = ()  # trusted issuers; empty: any issuer

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Settings":
        """Read the settings from environment variables.

        Raises ValueError that names every variable with an invalid value.
        """
        values: dict[str, Any] = {}
        errors = []
        for variable, (attribute, parse) in VARIABLES.items():
            if text := environ.get(variable):
                try:
                    values[attribute] = parse(text)
                except ValueError:
                    reason = PARSE_ERRORS.get(parse, "is not a number")
                    errors.append(f"{variable}={text!r} {reason}")
        if errors:
            raise ValueError("; ".join(errors))
        return cls(**values)

    @property
    def public_base(self) -> str:
        """Return the base address of the public pages, without a trailing slash."""
        return (self.web_base or f"http://{self.host}:{self.port}").rstrip("/")
