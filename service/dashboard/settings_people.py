"""The settings page of the people of a company and their roles."""

from collections.abc import Mapping
from functools import partial

from aiohttp import web

from service.dashboard import pages, people
from service.dashboard.links import NewLink, insert_link
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import ADMINISTER, RIGHTS, SESSION
from service.db.statements import sql
from service.http import app_keys
from service.http.forms import FORM

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

PLACE = "/settings/people"
TEXTS = pages.TEXTS["settings"]["people"]
NAME_CHARACTERS = 200
NOTHING_SENT: Mapping[str, str] = {}


@page("GET", PLACE)
async def show_people(
    request: web.Request,
    link: str | None = None,
    wrong: str | None = None,
    sent: Mapping[str, str] = NOTHING_SENT,
) -> web.Response:
    """Return the people of the company. `link` is a new one-time link, which is shown once.

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
        link=link,
        wrong=wrong,
        sent=sent,
        choices=[each for each in RIGHTS if people.may_change(role, each)],
        may_change=partial(people.may_change, role),
    )


@page("POST", PLACE, return_to=PLACE)
async def invite(request: web.Request) -> web.Response:
    """Invite a person and show the one-time link, or change an accepted role."""
    form, company = request[FORM], request[app_keys.COMPANY]
    email, name = (form.get(field, "").strip() for field in ("email", "name"))
    role = form.get("role", "")
    if not people.is_email(email) or not name or role not in RIGHTS:
        sent = {"email": email, "name": name, "role": role}
        return await show_people(request, wrong=TEXTS["incomplete"], sent=sent)
    person = people.Person(email, name[:NAME_CHARACTERS])
    database, by = request.app[app_keys.DATABASE], request[SESSION].user_id
    invited = await people.invite(database, company, person, role, by)
    if invited.is_accepted:
        return redirect(f"{PLACE}?notice=role_given")
    return await _show_new_link(request, invited.user_id)


@page("POST", f"{PLACE}/{{id:[0-9]{{1,18}}}}/link", return_to=PLACE)
async def renew_link(request: web.Request) -> web.Response:
    """Make a new one-time link for a person, and show it."""
    return await _show_new_link(request, int(request.match_info["id"]))


async def _show_new_link(request: web.Request, user_id: int) -> web.Response:
    company, by = request[app_keys.COMPANY], request[SESSION].user_id
    database, base = request.app[app_keys.DATABASE], request.app[app_keys.CONFIG].public_url
    async with database.company(company) as conn:
        await people.check_link(conn, company, user_id, by)
        link = await insert_link(conn, base, NewLink(user_id, company, by))
    return await show_people(request, link=link)


@page("POST", f"{PLACE}/{{id:[0-9]{{1,18}}}}/remove", return_to=PLACE)
async def remove_member(request: web.Request) -> web.Response:
    """Remove a person from the company."""
    company, user_id = request[app_keys.COMPANY], int(request.match_info["id"])
    database, by = request.app[app_keys.DATABASE], request[SESSION].user_id
    await people.remove(database, company, user_id, by)
    return redirect(f"{PLACE}?notice=removed")
