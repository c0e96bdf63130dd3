"""People who sign in to the dashboard, and their one-time links."""

import argparse
from typing import Any

from service.commands.bootstrap import run, with_database
from service.commands.command_line import CommandLine, add_company_option, print_json
from service.commands.companies import CommandError
from service.commands.running import read_running_config
from service.config import Config
from service.dashboard import people
from service.dashboard.links import PASSWORD, SIGN_IN, make_link
from service.dashboard.sessions import RIGHTS
from service.db.statements import sql


def register(line: CommandLine) -> None:
    """Add the commands."""
    parser = line.add(
        "invite-user",
        _invite_user,
        "Give a person a role in a company, and print a one-time link to choose a password. A "
        "person who has a password gets no link.",
    )
    add_company_option(parser)
    parser.add_argument("--email", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--role", choices=tuple(RIGHTS), default="owner")
    parser = line.add(
        "link-user",
        _link_user,
        "Print a one-time link for a person to choose a new password, or with `--sign-in` to sign "
        "in without one. It replaces the earlier one.",
    )
    parser.add_argument("--email", required=True)
    parser.add_argument("--sign-in", action="store_true", help="sign in without a password")


def _invite_user(options: argparse.Namespace) -> None:
    invited = invite_user(
        read_running_config(), options.company, (options.email, options.name), options.role
    )
    print_json(run(invited))


def _link_user(options: argparse.Namespace) -> None:
    purpose = SIGN_IN if options.sign_in else PASSWORD
    print_json(run(link_user(read_running_config(), options.email, purpose)))


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
        link = None
        if not invited.has_password:
            link = await make_link(database, config.public_url, invited.user_id, PASSWORD)
        return {"user_id": invited.user_id, "link": link}


async def link_user(config: Config, email: str, purpose: str) -> dict[str, Any]:
    """Return {user_id, link} for a person. Raises CommandError if there is none."""
    async with with_database(config) as (config, database):
        async with database.across() as conn:
            user = await sql.user_by_email(conn, email=email)
        if user is None:
            raise CommandError("There is no person with this e-mail address.")
        link = await make_link(database, config.public_url, user["id"], purpose)
        return {"user_id": user["id"], "link": link}
