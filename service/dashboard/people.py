"""People of a company and their roles, and who may change them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from service.dashboard.links import read_companies
from service.dashboard.pages import TEXTS
from service.dashboard.sessions import ADMINISTER, OWN, RIGHTS, Session, SignInNeeded
from service.db.connections import Connection
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import BadRequest, Conflict, Forbidden, NotFound
from service.json_types import Row

MOST_PEOPLE = 200  # of a company, as far as people invite them
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")


@dataclass(frozen=True, slots=True)
class Person:
    """The e-mail address and the name of a person who is given a role."""

    email: str
    name: str


#: User id -> the person's role in a company and, once it is accepted, when it was.
Members = Mapping[int, Row]


def is_email(text: str) -> bool:
    return len(text) <= 254 and _EMAIL.fullmatch(text) is not None


def may_change(by: str | None, role: str) -> bool:
    """Return whether people with the role `by` may give or take a role.

    Only owners may give or take the roles that administer.
    """
    rights = RIGHTS.get(by or "", frozenset())
    return ADMINISTER in rights and (OWN in rights or ADMINISTER not in RIGHTS[role])


async def invite(
    database: Database, company_id: int, person: Person, role: str, by: int | None = None
) -> tuple[int, bool]:
    """Give a person a role in a company, or another one.

    Returns the person's id and whether the role is accepted. A new role is pending until the person
    accepts it by a link. `by` is the user who gives it, None for an operator, who may do
    everything. Raises Forbidden, and Conflict for the last owner.
    """
    async with database.company(company_id) as conn:
        name = person.name.strip()
        user_id = await sql.user_insert(conn, email=person.email, name=name)
        if by is not None:
            _check_change(await _lock_members(conn), by, user_id, role)
        accepted = await sql.member_put(conn, user_id=user_id, role=role, name=name)
    return user_id, accepted


async def change_role(
    database: Database, company_id: int, user_id: int, role: str, by: int
) -> tuple[int, bool]:
    """Give a person of a company another role. Raises NotFound, BadRequest, and as `invite`."""
    async with database.company(company_id) as conn:
        await sql.user_lock(conn, user_id=user_id)
        members = await _lock_members(conn)
        if user_id not in members:
            raise NotFound(TEXTS["settings"]["people"]["unknown"])
        if role not in RIGHTS:
            raise BadRequest(TEXTS["settings"]["people"]["incomplete"])
        _check_change(members, by, user_id, role)
        accepted = await sql.member_put(conn, user_id=user_id, role=role, name=None)
    return user_id, accepted


async def remove(database: Database, company_id: int, user_id: int, by: int) -> None:
    """Remove a person from a company. Raises Forbidden, NotFound, and Conflict: see `invite`."""
    async with database.company(company_id) as conn:
        await sql.user_lock(conn, user_id=user_id)
        _check_change(await _lock_members(conn), by, user_id, None)
        await sql.member_delete(conn, user_id=user_id, action="remove")


async def leave(database: Database, company_id: int, user_id: int) -> None:
    """Remove a person from a company who refuses or leaves it. Raises NotFound, and Conflict."""
    async with database.company(company_id) as conn:
        await sql.user_lock(conn, user_id=user_id)
        members = await _lock_members(conn)
        if user_id not in members:
            raise NotFound(TEXTS["sign_in"]["no_such_company"])
        _check_owner_stays(members, user_id)
        await sql.member_delete(conn, user_id=user_id, action="leave")


async def check_link(conn: Connection, company_id: int, user_id: int, session: Session) -> None:
    """Raise an error if the user of a session may not make a one-time link for a person.

    Session and roles stay as they are until the transaction ends, which stores the link: a new
    password, which ends the session, makes the link void.
    A person who has accepted the role needs a link for a forgotten password only. It is that of
    all companies, so that the person must have accepted the role of no other. A person cannot make
    a link for themselves: in a stolen session it would be a way to set the password.
    Raises SignInNeeded, Forbidden, NotFound and Conflict.
    """
    if user_id == session.user_id:
        raise Conflict(TEXTS["settings"]["people"]["own_link"])
    if await sql.session_keep(conn, token_sha256=session.digest) is None:
        raise SignInNeeded
    await sql.user_lock(conn, user_id=user_id)
    members = await _lock_members(conn)
    role = members[user_id]["role"] if user_id in members else None
    _check_change(members, session.user_id, user_id, role)
    accepted = await read_companies(conn, user_id)
    if company_id in accepted and len(accepted) > 1:
        raise Conflict(TEXTS["settings"]["people"]["elsewhere"])


def _check_change(members: Members, by: int, user_id: int, role: str | None) -> None:
    """Raise an error if a role may not be changed. `role` is the new one, None to remove a person.

    All `members` are locked, so that two owners cannot remove each other at the same time.
    """
    former = members.get(user_id)
    if former is None and role is None:
        raise NotFound(TEXTS["settings"]["people"]["unknown"])
    changed = filter(None, (former["role"] if former else None, role))
    changer = _get_accepted_role(members, by)
    if not all(may_change(changer, each) for each in changed):
        raise Forbidden(TEXTS["errors"]["no_right"])
    if former is None and len(members) >= MOST_PEOPLE:
        raise Conflict(TEXTS["settings"]["people"]["too_many"])
    if role != "owner":
        _check_owner_stays(members, user_id)


async def check_administers(conn: Connection, by: int) -> None:
    """Raise Forbidden if a person may not administer the company, or not any more.

    The roles stay as they are until the transaction ends.
    """
    role = _get_accepted_role(await _lock_members(conn), by)
    if role is None or ADMINISTER not in RIGHTS[role]:
        raise Forbidden(TEXTS["errors"]["no_right"])


def _get_accepted_role(members: Members, user_id: int) -> str | None:
    member = members.get(user_id)
    return member["role"] if member and member["accepted_at"] else None


def _check_owner_stays(members: Members, user_id: int) -> None:
    """Raise Conflict if a person is the last owner. Those who have not accepted do not count."""
    owners = [each for each in members if _get_accepted_role(members, each) == "owner"]
    if owners == [user_id]:
        raise Conflict(TEXTS["settings"]["people"]["last_owner"])


async def _lock_members(conn: Connection) -> Members:
    """Lock the people of a company until the transaction ends, and return them."""
    rows = await sql.members_lock(conn)
    return {row["user_id"]: row for row in rows}
