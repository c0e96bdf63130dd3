"""The addresses of the running service, which commands in another terminal use.

A service that runs with the sandbox writes them to DATA_DIR, as values of environment variables.
The environment of a command takes precedence.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from service import json_codec
from service.config import SETTINGS, Config, read_config

FILE = "running.json"
#: Fields of Config that the file has.
ADDRESSES = ("host", "port", "sandbox_port", "public_url")


@contextmanager
def record_addresses(config: Config) -> Iterator[None]:
    """Keep the addresses in a file of DATA_DIR during the block."""
    path = config.data_dir / FILE
    text = json_codec.dumps(
        {SETTINGS[name].variable: str(getattr(config, name)) for name in ADDRESSES}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            if path.read_text() == text:  # No other service has replaced it.
                path.unlink()


def read_running_config() -> Config:
    """Return the configuration of a command, with the addresses of the running service."""
    environment = {name: value for name, value in os.environ.items() if value}
    return read_config({**_read_addresses(read_config(environment).data_dir), **environment})


def _read_addresses(data_dir: Path) -> Mapping[str, str]:
    try:
        return json_codec.loads((data_dir / FILE).read_bytes())
    except (OSError, json_codec.NotJson):
        return {}
