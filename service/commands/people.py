"""People who sign in to the dashboard, and their one-time links."""

from typing import Any

from service.commands.bootstrap import with_database
from service.commands.command_line import CommandLine, add_company_option
from service.commands.companies import CommandError
from service.commands.running import read_running_config
from service.config import Config
from service.dashboard import people
from service.dashboard.links import NewLink, make_link, make_operator_link, read_roles
from service.dashboard.sessions import RIGHTS
from service.db.statements import sql


def register(line: CommandLine) -> None:
    """Add the commands."""
    parser = line.add(
        "invite-user",
        lambda options: invite_user(
            read_running_config(), options.company, (options.email, options.name), options.role
        ),
        "Give a person a role in a company, and print a one-time link to accept it. The link also "
        "chooses a password, unless another company has given the person a role.",
    )
    add_company_option(parser)
    parser.add_argument("--email", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--role", choices=tuple(RIGHTS), default="owner")
    parser = line.add(
        "link-user",
        lambda options: link_user(read_running_config(), options.email),
        "Print a one-time link for a person to choose a new password. The present password and "
        "other links become void, sessions end, and each role is pending until the person accepts "
        "it again by a link of its company.",
    )
    parser.add_argument("--email", required=True)


async def invite_user(
    config: Config, company_id: int, person: tuple[str, str], role: str
) -> dict[str, Any]:
    """Give a person (e-mail address, name) a role, and return {user_id, link}.

    Raises CommandError.
    """
    email, name = person
    if not people.is_email(email) or not name.strip():
        raise CommandError("An e-mail address and a name are required.")
    async with with_database(config) as (config, database):
        async with database.company(company_id) as conn:
            if await sql.issuer_get(conn, company_id=company_id) is None:
                raise CommandError(f"There is no company {company_id}.")
        invited = await people.invite(database, company_id, people.Person(email, name), role)
        link = await make_link(database, config.public_url, NewLink(invited.user_id, company_id))
        return {"user_id": invited.user_id, "link": link}


async def link_user(config: Config, email: str) -> dict[str, Any]:
    """Return {user_id, link, roles} for a person. Raises CommandError if there is none.

    `roles` are the companies whose role is now pending, and need a link of their own.
    """
    async with with_database(config) as (config, database):
        async with database.across() as conn:
            user = await sql.user_by_email(conn, email=email)
        if user is None:
            raise CommandError("There is no person with this e-mail address.")
        link = await make_operator_link(database, config.public_url, user["id"])
        async with database.across() as conn:
            roles = await read_roles(conn, user["id"])
        pending = [{"company_id": each.company_id, "role": each.name} for each in roles]
        return {"user_id": user["id"], "link": link, "roles": pending}
