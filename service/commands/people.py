"""People who sign in to the dashboard, and their one-time links."""

from service.commands.command_line import CommandLine
from service.config import Config
from service.dashboard import people
from service.dashboard.links import NewLink, make_link, make_operator_link, read_roles
from service.dashboard.sessions import RIGHTS
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import OperatorError
from service.json_types import JsonObject


def register(line: CommandLine) -> None:
    parser = line.add("invite-user", invite_user)
    parser.add_argument("--role", choices=tuple(RIGHTS), required=True)
    line.add("link-user", link_user)


async def invite_user(
    config: Config, database: Database, company_id: int, role: str, **person: str
) -> JsonObject:
    """Give a person a role in a company, and print a one-time link to accept it.

    The link also chooses a password, unless another company has given the person a role.
    """
    if not people.is_email(person["email"]) or not person["name"].strip():
        raise OperatorError("An e-mail address and a name are required.")
    user_id, _ = await people.invite(database, company_id, people.Person(**person), role)
    link = await make_link(database, config.public_url, NewLink(user_id, company_id))
    return {"user_id": user_id, "link": link}


async def link_user(config: Config, database: Database, email: str) -> JsonObject:
    """Print a one-time link for a person to choose a new password.

    The present password and other links become void, sessions end, and each role is pending until
    the person accepts it again by a link of its company.
    """
    user = await database.call(sql.user_account, email=email)
    if user["id"] is None:
        raise OperatorError("There is no person with this e-mail address.")
    link = await make_operator_link(database, config.public_url, user["id"])
    roles = await database.call(read_roles, user_id=user["id"])
    pending = [{"company_id": each.company_id, "role": each.name} for each in roles]
    return {"user_id": user["id"], "link": link, "roles": pending}
