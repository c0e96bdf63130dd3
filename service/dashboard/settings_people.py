"""The settings page of the people of a company and their roles."""

from collections.abc import Mapping
from functools import partial

from aiohttp import web

from service.dashboard import pages, people
from service.dashboard.links import NewLink, insert_link
from service.dashboard.numbers import read_number
from service.dashboard.operations import Failed
from service.dashboard.pages import Page, redirect, render
from service.dashboard.repetition import run_once, show_secrets, take_secrets
from service.dashboard.sessions import ADMINISTER, RIGHTS, SESSION
from service.db.statements import sql
from service.http import app_keys
from service.http.forms import FORM
from service.http.idempotency import store_response_without
from service.http.responses import success_response

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

PLACE = "/settings/people"
TEXTS = pages.TEXTS["settings"]["people"]
NAME_CHARACTERS = 200
NOTHING_SENT: Mapping[str, str] = {}


@page("GET", PLACE)
async def show_people(
    request: web.Request, wrong: str | None = None, sent: Mapping[str, str] = NOTHING_SENT
) -> web.Response:
    """Return the people of the company, and once a new one-time link.

    `sent` are the entries of an invitation that is not valid.
    """
    company, role = request[app_keys.COMPANY], request[SESSION].role
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        members = await sql.member_list(conn, company_id=company)
    return render(
        request,
        "settings_people.html",
        422 if wrong else 200,
        members=members,
        created=await take_secrets(request, _find_form(request)),
        wrong=wrong,
        sent=sent,
        choices=[each for each in RIGHTS if people.may_change(role, each)],
        may_change=partial(people.may_change, role),
    )


@page("POST", PLACE, return_to=PLACE)
async def invite(request: web.Request) -> web.Response:
    """Invite a person and go to the page that shows the link once, or change an accepted role."""
    form = request[FORM]
    email, name = (form.get(field, "").strip() for field in ("email", "name"))
    role = form.get("role", "")
    if not people.is_email(email) or not name or role not in RIGHTS:
        sent = {"email": email, "name": name, "role": role}
        return await show_people(request, wrong=TEXTS["incomplete"], sent=sent)
    person = people.Person(email, name[:NAME_CHARACTERS])
    answer = await run_once(request, partial(_invite, person, role))
    if not answer.is_success:
        raise Failed(answer)
    if answer.value["data"]["is_accepted"]:
        return redirect(f"{PLACE}?notice=role_given")
    return show_secrets(request, PLACE)


async def _invite(person: people.Person, role: str, request: web.Request) -> web.Response:
    """Give a person a role, and return a one-time link if the role is pending."""
    company, by = request[app_keys.COMPANY], request[SESSION].user_id
    invited = await people.invite(request.app[app_keys.DATABASE], company, person, role, by)
    if invited.is_accepted:
        return success_response("", data={"is_accepted": True})
    return await _insert_link(invited.user_id, request)


@page("POST", f"{PLACE}/{{id:[0-9]{{1,18}}}}/link", return_to=PLACE)
async def renew_link(request: web.Request) -> web.Response:
    """Make a new one-time link for a person, and go to the page that shows it once."""
    user_id = int(request.match_info["id"])
    answer = await run_once(request, partial(_insert_link, user_id))
    if not answer.is_success:
        raise Failed(answer)
    return show_secrets(request, PLACE, of=user_id)


async def _insert_link(user_id: int, request: web.Request) -> web.Response:
    """Store and return a one-time link for a person, which replaces the earlier ones."""
    company, by = request[app_keys.COMPANY], request[SESSION].user_id
    database, base = request.app[app_keys.DATABASE], request.app[app_keys.CONFIG].public_url
    async with database.company(company) as conn:
        await people.check_link(conn, company, user_id, by)
        link = await insert_link(conn, base, NewLink(user_id, company, by))
        response = success_response("", 201, data={"is_accepted": False, "link": link})
        await store_response_without(request, conn, response, "link")
    return response


def _find_form(request: web.Request) -> str:
    """Return the path of the form whose link is shown: of an invitation, or of a person."""
    user_id = read_number(request.query.get("of", ""), 18)
    return PLACE if user_id is None else f"{PLACE}/{user_id}/link"


@page("POST", f"{PLACE}/{{id:[0-9]{{1,18}}}}/remove", return_to=PLACE)
async def remove_member(request: web.Request) -> web.Response:
    """Remove a person from the company."""
    company, user_id = request[app_keys.COMPANY], int(request.match_info["id"])
    database, by = request.app[app_keys.DATABASE], request[SESSION].user_id
    await people.remove(database, company, user_id, by)
    return redirect(f"{PLACE}?notice=removed")
