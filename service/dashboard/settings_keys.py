"""The settings page of the API keys of a company."""

from datetime import UTC, datetime
from functools import partial

from aiohttp import web

from service.dashboard import pages
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import ADMINISTER
from service.db.statements import sql
from service.errors import Conflict, NotFound
from service.http import api_keys, app_keys
from service.http.forms import FORM

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

TEXTS = pages.TEXTS["settings"]["api_keys"]
NAME_CHARACTERS = 100


@page("GET", "/settings/keys")
async def show_keys(
    request: web.Request, created: str | None = None, wrong: str | None = None
) -> web.Response:
    """Return the API keys. `created` is the text of a new key, which is shown once."""
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        keys = await sql.api_key_list(conn, company_id=company)
    return render(
        request,
        "settings_keys.html",
        422 if wrong else 200,
        keys=keys,
        created=created,
        wrong=wrong,
        now=datetime.now(UTC),
    )


@page("POST", "/settings/keys", return_to="/settings/keys")
async def create_key(request: web.Request) -> web.Response:
    """Create a key and show it once."""
    form, company = request[FORM], request[app_keys.COMPANY]
    name = form.get("name", "").strip()[:NAME_CHARACTERS]
    expires = form.get("expires", "").strip()
    zone = request.app[app_keys.CONFIG].time_zone
    expires_at = None
    try:
        if expires:
            expires_at = datetime.fromisoformat(expires).replace(tzinfo=zone)
    except ValueError:
        return await show_keys(request, wrong=TEXTS["no_day"])
    if not name:
        return await show_keys(request, wrong=TEXTS["no_name"])
    if expires_at and expires_at <= datetime.now(UTC):
        return await show_keys(request, wrong=TEXTS["past"])
    config = request.app[app_keys.CONFIG]
    key = api_keys.new_key(live=config.has_live_portal, cell=config.cell)
    try:
        async with request.app[app_keys.DATABASE].company(company) as conn:
            await api_keys.insert_key(conn, company, key, name, expires_at)
    except Conflict as error:
        return await show_keys(request, wrong=str(error))
    return await show_keys(request, created=key.text)


@page("POST", "/settings/keys/{id:[0-9A-Za-z]{12,15}}/revoke")
async def revoke_key(request: web.Request) -> web.Response:
    """Revoke a key. It stops working in every process within a second."""
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        known = await sql.api_key_revoke(conn, company_id=company, key_id=request.match_info["id"])
    if known is None:
        raise NotFound(TEXTS["no_such"])
    return redirect("/settings/keys?notice=revoked")
