"""Settings of who has access to a company: its API keys, and its people with their roles."""

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, time
from functools import partial

from aiohttp import web

from service.api.records import store_created
from service.dashboard import pages, people
from service.dashboard.links import NewLink, insert_link
from service.dashboard.operations import Answer
from service.dashboard.repetition import run_once, take_secrets
from service.dashboard.sessions import RIGHTS, SESSION
from service.dashboard.settings import Action, FormRefusal, declare
from service.db.statements import sql
from service.db.transactions import Owner
from service.errors import NotFound
from service.http import api_keys, app_keys
from service.http.access import company_transaction, zone_of
from service.http.forms import FORM, read_number
from service.http.responses import success_response
from service.json_types import JsonMapping

KEYS, PEOPLE = "/settings/keys", "/settings/people"
KEY_TEXTS, PEOPLE_TEXTS = (pages.TEXTS["settings"][name] for name in ("api_keys", "people"))
KEY_NAME_CHARACTERS, NAME_CHARACTERS = 100, 200


async def _read_keys(request: web.Request) -> JsonMapping:
    """Return the API keys, and once the text of a new key."""
    owner = Owner("company", request[app_keys.COMPANY])
    keys = await request.app[app_keys.DATABASE].read(sql.api_key_list, **owner.variables)
    return {"keys": keys, "created": await take_secrets(request, KEYS), "now": datetime.now(UTC)}


async def _create_key(request: web.Request) -> Answer | FormRefusal:
    """Create a key that expires at the beginning of the given day, or never."""
    form = request[FORM]
    name = form.get("name", "").strip()[:KEY_NAME_CHARACTERS]
    expires = form.get("expires", "").strip()
    zone = zone_of(request)
    expires_at = None
    try:
        if expires:
            expires_at = datetime.combine(date.fromisoformat(expires), time(), zone)
    except ValueError:
        return FormRefusal(422, {"expires": KEY_TEXTS["no_day"]})
    if not name:
        return FormRefusal(422, {"name": KEY_TEXTS["no_name"]})
    if expires_at and expires_at <= datetime.now(UTC):
        return FormRefusal(422, {"expires": KEY_TEXTS["past"]})
    return await run_once(request, partial(_insert_key, name, expires_at))


async def _insert_key(name: str, expires_at: datetime | None, request: web.Request) -> web.Response:
    """Store a new key, and return its text.

    Raises Forbidden if the person has lost the role meanwhile, since the key would outlive it, and
    Conflict if the company has too many keys.
    """
    config = request.app[app_keys.CONFIG]
    key = api_keys.new_key(live=config.has_live_portal, cell=config.cell)
    async with company_transaction(request) as conn:
        await people.check_administers(conn, request[SESSION].user_id)
        await api_keys.insert_key(conn, key, name, expires_at)
        return await store_created(request, conn, "", {"key": key.text}, "key")


async def _revoke_key(request: web.Request) -> None:
    """Revoke a key. It stops working in every process within a second."""
    async with company_transaction(request) as conn:
        known = await sql.api_key_revoke(conn, key_id=request.match_info["id"])
    if known is None:
        raise NotFound(KEY_TEXTS["no_such"])


async def _read_people(request: web.Request) -> JsonMapping:
    """Return the people of the company, and once a new one-time link."""
    company, role = request[app_keys.COMPANY], request[SESSION].role
    members = await request.app[app_keys.DATABASE].read(sql.member_list, company_id=company)
    return {
        "members": members,
        "created": await _take_link(request),
        "choices": [each for each in RIGHTS if people.may_change(role, each)],
        "may_change": partial(people.may_change, role),
    }


async def _take_link(request: web.Request) -> JsonMapping | None:
    """Return once the link that a form has made: the invitation, or one of a person."""
    user_id, taken = read_number(request.query.get("id", ""), 18), None
    for path in ("",) if user_id is None else (f"/{user_id}/link", f"/{user_id}/role"):
        taken = taken or await take_secrets(request, f"{PEOPLE}{path}")
    return taken


async def _invite(request: web.Request) -> Answer | FormRefusal:
    """Invite a person, or change an accepted role."""
    form = request[FORM]
    email, name = (form.get(field, "").strip() for field in ("email", "name"))
    role = form.get("role", "")
    if not people.is_email(email) or not name or role not in RIGHTS:
        return FormRefusal(422, message=PEOPLE_TEXTS["incomplete"])
    person = people.Person(email, name[:NAME_CHARACTERS])
    give = partial(people.invite, person=person, role=role)
    return await run_once(request, partial(_give_role, give))


async def _change_role(request: web.Request) -> Answer:
    """Give a person of the company another role, unless the person was removed meanwhile."""
    user_id, role = int(request.match_info["id"]), request[FORM].get("role", "")
    give = partial(people.change_role, user_id=user_id, role=role)
    return await run_once(request, partial(_give_role, give))


async def _give_role(
    give: Callable[..., Awaitable[tuple[int, bool]]], request: web.Request
) -> web.Response:
    """Give a person a role, and return a one-time link if the role is pending."""
    company, by = request[app_keys.COMPANY], request[SESSION].user_id
    user_id, is_accepted = await give(request.app[app_keys.DATABASE], company, by=by)
    if is_accepted:
        return success_response(request, "", data={})
    return await _insert_link(user_id, request)


async def _renew_link(request: web.Request) -> Answer:
    return await run_once(request, partial(_insert_link, int(request.match_info["id"])))


async def _insert_link(user_id: int, request: web.Request) -> web.Response:
    """Store and return a one-time link for a person, which replaces the earlier ones."""
    company, session = request[app_keys.COMPANY], request[SESSION]
    async with company_transaction(request) as conn:
        await people.check_link(conn, company, user_id, session)
        base = request.app[app_keys.CONFIG].public_url
        link = await insert_link(conn, base, NewLink(user_id, company, session.user_id))
        return await store_created(request, conn, "", {"link": link}, "link")


async def _remove_member(request: web.Request) -> None:
    company, user_id = request[app_keys.COMPANY], int(request.match_info["id"])
    database, by = request.app[app_keys.DATABASE], request[SESSION].user_id
    await people.remove(database, company, user_id, by)


declare(
    KEYS,
    "settings_keys.html",
    _read_keys,
    Action("", _create_key),
    Action("/{id:[0-9A-Za-z]{12,15}}/revoke", _revoke_key, "revoked", needs_password=False),
)
declare(
    PEOPLE,
    "settings_people.html",
    _read_people,
    Action("", _invite, "role_given"),
    Action("/{id}/role", _change_role, "role_given"),
    Action("/{id}/link", _renew_link),
    Action("/{id}/remove", _remove_member, "removed"),
)
