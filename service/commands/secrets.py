"""Secrets that are kept sealed, from the command line."""

from service.commands.bootstrap import with_database
from service.commands.companies import CommandError
from service.config import MAKE_SECRET_KEY
from service.db.encryption import Vault
from service.db.reencryption import reseal


async def reseal_all(config):
    """{sealed, unopenable}: all that is kept is sealed with the present SECRET_KEY. Raises CommandError without one."""
    async with with_database(config) as (config, database):
        if not config.secret_key:
            raise CommandError(
                f"SECRET_KEY is missing: secrets are sealed with it. {MAKE_SECRET_KEY}"
            )
        return await reseal(database, Vault(config.secret_key, config.secret_key_previous))
