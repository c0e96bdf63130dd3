"""Start settings of the sandbox, and the taxpayers that are registered initially."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
from cryptography.x509 import Certificate

from .certificates import read_authorities
from .document import IdentityScheme


class Identity(msgspec.Struct, frozen=True, order=True):
    """A registration or identity number of a taxpayer."""

    type: IdentityScheme
    value: str


class Taxpayer(msgspec.Struct):
    """A taxpayer of the register. The profile is what its QR code shows besides name and number."""

    tin: str
    name: str = ""
    identities: set[Identity] = set()
    profile: dict[str, str] = {}
    blocked: bool = False

    def __post_init__(self) -> None:
        self.name = self.name or f"Taxpayer {self.tin}"


class Client(msgspec.Struct):
    """A client. `represents` limits the taxpayers that an intermediary acts for."""

    client_id: str
    client_secret: str
    tin: str
    intermediary: bool = False
    represents: list[str] | None = None
    blocked: bool = False


def seed_taxpayers() -> dict[str, Taxpayer]:
    """Return the initially registered taxpayers by TIN."""
    content = Path(__file__).with_name("taxpayers.json").read_bytes()
    return {each.tin: each for each in msgspec.json.decode(content, type=list[Taxpayer])}


@dataclass(frozen=True)
class Settings:
    """Settings that are fixed while the process runs. `controls.Controls` holds the others."""

    host: str = "127.0.0.1"
    port: int = 8090
    state: str = ".data/sandbox.sqlite3"  # path of the SQLite file
    processing_seconds: float = 2  # from the 202 response to the end of validation
    token_seconds: float = 3600
    rate_scale: float = 1  # multiplies every rate limit; 0 disables rate limits
    client_id: str = "sandbox-client"
    client_secret: str = "sandbox-secret"
    tin: str = "C25845632020"  # taxpayer of the client without `onbehalfof`
    trusted_ca: tuple[Certificate, ...] = ()  # trusted issuers; empty: any issuer

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Settings":
        """Read the settings from environment variables.

        Raises ValueError that names every variable with an invalid value.
        """
        values: dict[str, Any] = {}
        errors = []
        for variable, setting in VARIABLES.items():
            parse: Any = read_authorities if setting.name == "trusted_ca" else setting.type
            if text := environ.get(variable):
                try:
                    values[setting.name] = parse(text)
                except ValueError as error:
                    errors.append(f"{variable}={text!r}: {error}")
        if errors:
            raise ValueError("; ".join(errors))
        return cls(**values)


#: Environment variable -> its setting.
VARIABLES = {f"SANDBOX_{setting.name.upper()}": setting for setting in fields(Settings)}
