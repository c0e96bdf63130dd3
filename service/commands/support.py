"""The login of support staff at the embedded PostgreSQL."""

import secrets

from yarl import URL

from service.config import Config
from service.db.connections import connect
from service.db.statements import sql

SUPPORT_ROLE = "einvoice_support"


async def create_support_login(config: Config) -> str:
    """Give the support login a new password, and return its address.

    It reads the rows of all companies and no secret, and changes nothing.
    """
    password = secrets.token_urlsafe(18)
    conn = await connect(config.database_url, {}, silence=config.database_silence)
    try:
        async with conn.transaction():
            commands = await sql.support_login_commands(conn, name=SUPPORT_ROLE, password=password)
            for row in commands:
                await conn.execute(row["command"])
    finally:
        await conn.close()
    return str(URL(config.database_url).with_user(SUPPORT_ROLE).with_password(password))
