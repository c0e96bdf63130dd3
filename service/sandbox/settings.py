"""What the sandbox is started with, and whom it knows at the start."""

from dataclasses import dataclass

from .certificates import read_authorities

#: taxpayers of the register at the start: TIN, name, identities as (type, value).
SEEDED_TAXPAYERS = (
    ("C25845632020", "Sandbox Intermediary Sdn. Bhd.", (("BRN", "201901012345"),)),
    ("C4821093650", "Perabot Seri Maju Sdn. Bhd.", (("BRN", "201801024680"),)),
    ("C5510387420", "Tiga Rasa Restoran Sdn. Bhd.", (("BRN", "202101033579"),)),
    ("C2084716530", "Kilang Kayu Bukit Hijau Sdn. Bhd.", (("BRN", "199901012345"),)),
    ("IG40125678090", "Aminah binti Yusof", (("NRIC", "880214145566"), ("PASSPORT", "A30112233"))),
    ("IG30987654010", "Lim Chee Keong", (("NRIC", "791130075533"), ("BRN", "201903216549"))),
)

#: variable -> (member, how to read its text)
VARIABLES = {
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
WRONG = {read_authorities: "is not a file of certificates in PEM"}


@dataclass(frozen=True)
class Settings:
    """Fixed while the process runs; `controls.Controls` has what can change."""

    host: str = "127.0.0.1"
    port: int = 8090
    state: str = ".data/sandbox.sqlite3"  # path of the sqlite file
    processing_seconds: float = 2  # from the 202 to the end of validation
    token_seconds: float = 3600
    web_base: str = ""  # empty: http://host:port
    rate_scale: float = 1  # multiplies every quota; 0 switches quotas off
    client_id: str = "sandbox-client"
    client_secret: str = "sandbox-secret"
    tin: str = "C25845632020"  # whom the client is without `onbehalfof`
    authorities: tuple = ()  # the certificates that may issue those of signers; none: any may

    @classmethod
    def from_env(cls, environ):
        """Raises ValueError naming every variable whose text cannot be read."""
        values, wrong = {}, []
        for variable, (member, read) in VARIABLES.items():
            if text := environ.get(variable):
                try:
                    values[member] = read(text)
                except ValueError:
                    wrong.append(f"{variable}={text!r} {WRONG.get(read, 'is not a number')}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return cls(**values)

    @property
    def public_base(self):
        """Where the public pages are, without a slash at the end."""
        return (self.web_base or f"http://{self.host}:{self.port}").rstrip("/")
