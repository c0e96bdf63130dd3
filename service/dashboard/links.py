"""One-time links, by which a person chooses a password or signs in.

An operator's command or an administrator makes them; no mail server is needed.
"""

from datetime import timedelta

from service.db.statements import sql
from service.db.transactions import Database
from service.http.tokens import digest_of, make_token

PASSWORD, SIGN_IN = "password", "sign_in"
#: Purpose -> the time in which a link can be used.
LIFETIMES = {PASSWORD: timedelta(days=3), SIGN_IN: timedelta(hours=24)}


async def make_link(database: Database, base: str, user_id: int, purpose: str) -> str:
    """Return a new link, which replaces the earlier ones of its purpose. `base` is PUBLIC_URL."""
    token = make_token()
    async with database.across() as conn:
        await sql.link_insert(
            conn,
            token_sha256=digest_of(token),
            user_id=user_id,
            purpose=purpose,
            lifetime=LIFETIMES[purpose],
        )
    return f"{base}/link/{token}"
