"""The settings page of the API keys of a company."""

from datetime import UTC, datetime
from functools import partial

from aiohttp import web

from service.dashboard import pages
from service.dashboard.pages import Page, redirect, render
from service.dashboard.repetition import run_once, show_secrets, take_secrets
from service.dashboard.sessions import ADMINISTER
from service.db.statements import sql
from service.errors import NotFound
from service.http import api_keys, app_keys
from service.http.forms import FORM
from service.http.idempotency import store_response_without
from service.http.responses import success_response

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

PLACE = "/settings/keys"
TEXTS = pages.TEXTS["settings"]["api_keys"]
NAME_CHARACTERS = 100


@page("GET", PLACE)
async def show_keys(request: web.Request, wrong: str | None = None) -> web.Response:
    """Return the API keys, and once the text of a new key."""
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        keys = await sql.api_key_list(conn, company_id=company)
    return render(
        request,
        "settings_keys.html",
        422 if wrong else 200,
        keys=keys,
        created=await take_secrets(request, PLACE),
        wrong=wrong,
        now=datetime.now(UTC),
    )


@page("POST", PLACE, return_to=PLACE)
async def create_key(request: web.Request) -> web.Response:
    """Create a key, and go to the page that shows it once."""
    form = request[FORM]
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
    answer = await run_once(request, partial(_insert_key, name, expires_at))
    if not answer.is_success:
        return await show_keys(request, wrong=answer.message)
    return show_secrets(request, PLACE)


async def _insert_key(name: str, expires_at: datetime | None, request: web.Request) -> web.Response:
    """Store a new key, and return its text. Raises Conflict if the company has too many."""
    config, company = request.app[app_keys.CONFIG], request[app_keys.COMPANY]
    key = api_keys.new_key(live=config.has_live_portal, cell=config.cell)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        await api_keys.insert_key(conn, company, key, name, expires_at)
        response = success_response("", 201, data={"key": key.text})
        await store_response_without(request, conn, response, "key")
    return response


@page("POST", f"{PLACE}/{{id:[0-9A-Za-z]{{12,15}}}}/revoke")
async def revoke_key(request: web.Request) -> web.Response:
    """Revoke a key. It stops working in every process within a second."""
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        known = await sql.api_key_revoke(conn, company_id=company, key_id=request.match_info["id"])
    if known is None:
        raise NotFound(TEXTS["no_such"])
    return redirect(f"{PLACE}?notice=revoked")
