"""One-time links, by which a person accepts the role in a company and chooses a password.

An operator's command or an administrator makes them; no mail server is needed. What a link does
depends on the roles of the person when it is used, see `Link.step`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.dashboard.formats import TEXTS
from service.dashboard.sessions import Session, SignInNeeded
from service.db.connections import Connection
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import NotFound
from service.http.tokens import digest_of, make_token

PASSWORD, SIGN_IN = "password", "sign_in"
#: Purpose -> the time in which a link can be used.
LIFETIMES = {PASSWORD: timedelta(days=3), SIGN_IN: timedelta(hours=24)}

#: What a link asks for: a new password, the present one, nothing, or a password that the person
#: does not have, which only the operator's link can set.
CHOOSE, CONFIRM, ENTER, BLOCKED = "choose", "confirm", "enter", "blocked"


@dataclass(frozen=True, slots=True)
class Role:
    company_id: int
    company_name: str
    name: str
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link to make: for a person, by a company's administrator or for a company by the operator.

    Without a company it is the operator's, which sets the password for all companies.
    """

    user_id: int
    company_id: int | None
    made_by: int | None = None
    purpose: str = PASSWORD


@dataclass(frozen=True, slots=True)
class Link:
    """A link that can be used, with its person and the roles of the person at present."""

    digest: bytes
    user_id: int
    name: str
    email: str
    password_hash: str | None
    purpose: str
    company_id: int | None
    created_at: datetime
    roles: Sequence[Role]

    @property
    def role(self) -> Role | None:
        """The person's role in the company of the link."""
        return next((role for role in self.roles if role.company_id == self.company_id), None)

    @property
    def is_refusable(self) -> bool:
        """True if the link is an invitation that the person has not accepted."""
        return self.role is not None and not self.role.is_accepted

    @property
    def step(self) -> str:
        """The kind of evidence that the link asks for.

        A company's link sets no password for a person with a role in another company. A role that
        the person has not accepted does not count if the link's company has an accepted one.
        """
        if self.company_id is None:
            return CHOOSE
        others = [role for role in self.roles if role.company_id != self.company_id]
        if any(role.is_accepted for role in others) or (others and self.is_refusable):
            return BLOCKED if self.password_hash is None else CONFIRM
        return CHOOSE if self.purpose == PASSWORD else ENTER


async def make_link(database: Database, base: str, new: NewLink) -> str:
    """Return a link, which replaces the earlier ones of its company. `base` is PUBLIC_URL."""
    async with _transaction(database, new.company_id) as conn:
        return await insert_link(conn, base, new)


async def insert_link(conn: Connection, base: str, new: NewLink) -> str:
    """Store and return a link, as `make_link` does, in a transaction of its company."""
    token = make_token()
    await sql.link_insert(
        conn,
        token_sha256=digest_of(token),
        user_id=new.user_id,
        purpose=new.purpose,
        company=new.company_id,
        made_by=new.made_by,
        lifetime=LIFETIMES[new.purpose],
    )
    return f"{base}/link/{token}"


async def make_operator_link(database: Database, base: str, user_id: int) -> str:
    """Return the operator's link for a person, which chooses a password.

    The present password and other links become void, sessions end, and roles are pending until
    they are accepted again.
    """
    async with database.person() as conn:
        await sql.user_lock(conn, user_id=user_id)
        await sql.user_set_password(conn, user_id=user_id, password_hash=None)
        await _end_access(conn, user_id)
    return await make_link(database, base, NewLink(user_id, None))


async def _end_access(conn: Connection, user_id: int) -> None:
    """End the sessions of a locked person, and make all roles pending and all links void.

    The roles are first: they are locked while the person makes a link, which is then void too.
    """
    await sql.reset_roles(conn, person=user_id)
    await sql.links_void(conn, user_id=user_id)
    await sql.sessions_end(conn, user_id=user_id, kept=None)


async def read_roles(conn: Connection, user_id: int) -> list[Role]:
    """Return all roles of a person, also pending ones."""
    return [
        Role(row["company_id"], row["name"], row["role"], row["accepted_at"] is not None)
        for row in await sql.roles_of(conn, wanted=user_id)
    ]


async def read_companies(conn: Connection, user_id: int) -> list[int]:
    """Return the ids of the companies whose role a person has accepted, ordered by name."""
    return [role.company_id for role in await read_roles(conn, user_id) if role.is_accepted]


async def find_link(conn: Connection, digest: bytes) -> Link | None:
    """Return the link with a digest, or None if it cannot be used.

    A link of a company that has removed the person cannot be used.
    """
    row = await sql.link_get(conn, token_sha256=digest)
    if row is None:
        return None
    link = Link(digest=digest, roles=await read_roles(conn, row["user_id"]), **row)
    return link if link.company_id is None or link.role else None


async def use_link(database: Database, link: Link, password_hash: str | None) -> None:
    """Use a link as it was shown: accept the role of its company and store a new password.

    All sessions of the person end, and older links become void. The operator's link accepts no
    role. Raises NotFound if the link, its role, the password or what the link asks for has changed
    since.
    """
    async with _using(database, link) as conn:
        if link.company_id is not None and link.step == CHOOSE:
            await sql.void_invitations(conn, person=link.user_id, kept=link.company_id)
        await sql.link_use(
            conn,
            user_id=link.user_id,
            token_sha256=link.digest,
            created_at=link.created_at,
            sets_password=password_hash is not None,
        )
        if password_hash is not None:
            await sql.user_set_password(conn, user_id=link.user_id, password_hash=password_hash)
        if link.company_id is None:
            await _end_access(conn, link.user_id)
            return
        await sql.member_accept(conn, user_id=link.user_id)
        await sql.sessions_end(conn, user_id=link.user_id, kept=None)


async def change_password(database: Database, session: Session, password_hash: str) -> None:
    """Store a new password, end the sessions of the person, and make links void.

    The first password is that of a person who signed in by a link without one. As with a link that
    sets a password, the pending roles of other companies become void.
    Raises SignInNeeded if the session has ended, as it does when the password changes.
    """
    async with database.person() as conn:
        await sql.user_lock(conn, user_id=session.user_id)
        ended = await sql.sessions_end(conn, user_id=session.user_id, kept=None)
        if session.digest not in {row["token_sha256"] for row in ended}:
            raise SignInNeeded
        if not session.has_password:
            await sql.void_invitations(conn, person=session.user_id, kept=session.company_id or 0)
        await sql.links_void(conn, user_id=session.user_id)
        await sql.user_set_password(conn, user_id=session.user_id, password_hash=password_hash)


async def refuse_role(database: Database, link: Link) -> None:
    """Remove the role that a link invites to. Raises NotFound: see `use_link`."""
    async with _using(database, link) as conn:
        await sql.member_delete(conn, user_id=link.user_id, action="leave")


@asynccontextmanager
async def _using(database: Database, link: Link) -> AsyncIterator[Connection]:
    """Yield a transaction of the link's company with its person locked. Raises NotFound."""
    async with _transaction(database, link.company_id) as conn:
        await sql.user_lock(conn, user_id=link.user_id)
        present = await find_link(conn, link.digest)
        if (
            present is None
            or (present.role, present.step) != (link.role, link.step)
            or present.password_hash != link.password_hash
        ):
            raise NotFound(TEXTS["sign_in"]["link_gone"])
        yield conn


def _transaction(
    database: Database, company_id: int | None
) -> AbstractAsyncContextManager[Connection]:
    return database.person() if company_id is None else database.company(company_id)
