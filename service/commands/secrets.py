"""Encryption of stored secrets with the current key."""

import argparse
import sys

from service.commands.bootstrap import run, with_database
from service.commands.command_line import CommandLine, print_json
from service.commands.companies import CommandError
from service.config import MAKE_SECRET_KEY, Config, read_config
from service.db.encryption import Vault
from service.db.reencryption import reencrypt_secrets


def register(line: CommandLine) -> None:
    """Add the command."""
    line.add(
        "reseal",
        _reseal,
        "Encrypt all stored secrets with the current `SECRET_KEY`. "
        "Exit code 1 if any cannot be decrypted.",
    )


def _reseal(options: argparse.Namespace) -> None:
    done = run(reencrypt_all(read_config()))
    print_json(done)
    sys.exit(1 if done["unopenable"] else 0)


async def reencrypt_all(config: Config) -> dict[str, int]:
    """Encrypt all secrets with the current SECRET_KEY, and return {sealed, unopenable}.

    Raises CommandError without a key.
    """
    async with with_database(config) as (config, database):
        if not config.secret_key:
            raise CommandError(
                f"SECRET_KEY is missing: secrets are encrypted with it. {MAKE_SECRET_KEY}"
            )
        return await reencrypt_secrets(
            database, Vault(config.secret_key, config.secret_key_previous)
        )
