"""People of a company and their roles."""

import re
from dataclasses import dataclass

from service.db.statements import sql
from service.db.transactions import Database

_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")


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


async def invite(
    database: Database, company_id: int, *, email: str, name: str, role: str
) -> Invited:
    """Give a person a role in a company. The sessions of a person with another role end."""
    async with database.company(company_id) as conn:
        user_id = await sql.user_insert(conn, email=email, name=name.strip())
        await sql.member_put(conn, company_id=company_id, user_id=user_id, role=role)
        user = await sql.user_get(conn, user_id=user_id)
    has_password = user["password_hash"] is not None
    is_only_here = await belongs_only_to(database, user_id, company_id)
    return Invited(user_id, has_password, is_only_here and not has_password)


async def belongs_only_to(database: Database, user_id: int, company_id: int) -> bool:
    """Return whether a person is a member of one company and of no other.

    Only for such a person may an administrator make a link: it gives access to all companies of
    the person.
    """
    async with database.across() as conn:
        memberships = await sql.user_memberships(conn, user_id=user_id)
    return [each["company_id"] for each in memberships] == [company_id]
