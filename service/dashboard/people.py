"""People of a company and their roles, and who may change them."""

import re
from dataclasses import dataclass

from service.dashboard.pages import TEXTS
from service.dashboard.sessions import ADMINISTER, OWN, RIGHTS
from service.db.connections import Connection
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import Conflict, Forbidden, NotFound

_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")


@dataclass(frozen=True, slots=True)
class Person:
    """The e-mail address and the name of a person who is given a role."""

    email: str
    name: str


@dataclass(frozen=True, slots=True)
class Invited:
    """A person who was given a role.

    `needs_link` is true for a person without a password who is a member of no other company.
    """

    user_id: int
    has_password: bool
    needs_link: bool


def is_email(text: str) -> bool:
    """Return whether a text has the form of an e-mail address."""
    return _EMAIL.fullmatch(text) is not None and len(text) <= 254


def may_change(by: str, role: str) -> bool:
    """Return whether people with the role `by` may give or take a role.

    Only owners may give or take the roles that administer.
    """
    rights = RIGHTS[by]
    return ADMINISTER in rights and (OWN in rights or ADMINISTER not in RIGHTS[role])


async def invite(
    database: Database, company_id: int, person: Person, role: str, by: int | None = None
) -> Invited:
    """Give a person a role in a company. The sessions of a person with another role end.

    `by` is the user who gives it, None for an operator, who may do everything. Raises Forbidden,
    and Conflict for the last owner.
    """
    async with database.company(company_id) as conn:
        user_id = await sql.user_insert(conn, email=person.email, name=person.name.strip())
        if by is not None:
            await _check_change(conn, company_id, by, user_id, role)
        await sql.member_put(conn, company_id=company_id, user_id=user_id, role=role)
        user = await sql.user_get(conn, user_id=user_id)
    has_password = user["password_hash"] is not None
    is_only_here = await _belongs_only_to(database, user_id, company_id)
    return Invited(user_id, has_password, is_only_here and not has_password)


async def remove(database: Database, company_id: int, user_id: int, by: int) -> None:
    """Remove a person from a company. Raises Forbidden, NotFound, and Conflict: see `invite`."""
    async with database.company(company_id) as conn:
        await _check_change(conn, company_id, by, user_id, None)
        await sql.member_delete(conn, company_id=company_id, user_id=user_id)


async def check_link(database: Database, company_id: int, user_id: int, by: int) -> None:
    """Raise an error if the user `by` may not make a one-time link for a person.

    A link gives access to all companies of the person, who may therefore be a member of no other.
    Raises Forbidden, NotFound and Conflict.
    """
    async with database.company(company_id) as conn:
        roles = await _lock_roles(conn, company_id)
        await _check_change(conn, company_id, by, user_id, roles.get(user_id))
    if not await _belongs_only_to(database, user_id, company_id):
        raise Conflict(TEXTS["settings"]["people"]["elsewhere"])


async def _check_change(
    conn: Connection, company_id: int, by: int, user_id: int, role: str | None
) -> None:
    """Lock the people of a company, and raise an error if a role may not be changed.

    `role` is the new one, None to remove the person. All roles are locked, so that two owners
    cannot remove each other at the same time.
    """
    roles = await _lock_roles(conn, company_id)
    former = roles.get(user_id)
    if former is None and role is None:
        raise NotFound(TEXTS["settings"]["people"]["unknown"])
    changed = [each for each in (former, role) if each is not None]
    if by not in roles or not all(may_change(roles[by], each) for each in changed):
        raise Forbidden(TEXTS["errors"]["no_right"])
    owners = [each for each, held in roles.items() if held == "owner"]
    if owners == [user_id] and role != "owner":
        raise Conflict(TEXTS["settings"]["people"]["last_owner"])


async def _lock_roles(conn: Connection, company_id: int) -> dict[int, str]:
    """Lock the people of a company until the transaction ends, and return {user id: role}."""
    rows = await sql.members_lock(conn, company_id=company_id)
    return {row["user_id"]: row["role"] for row in rows}


async def _belongs_only_to(database: Database, user_id: int, company_id: int) -> bool:
    """Return whether a person is a member of one company and of no other."""
    async with database.across() as conn:
        memberships = await sql.user_memberships(conn, user_id=user_id)
    return [each["company_id"] for each in memberships] == [company_id]
