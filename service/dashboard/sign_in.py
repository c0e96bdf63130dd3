"""Sign-in by password or one-time link, sign-out, the password, and the choice of a company."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from service.dashboard import pages
from service.dashboard.links import PASSWORD
from service.dashboard.numbers import read_number
from service.dashboard.pages import Page, local_path, redirect, render
from service.dashboard.passwords import Passwords, find_weakness
from service.dashboard.sessions import (
    READ,
    SESSION,
    Session,
    begin_session,
    delete_cookie,
    set_cookie,
)
from service.db.statements import sql
from service.errors import NotFound, TooManyRequests, retry_after
from service.http import app_keys
from service.http.client_address import sender_of
from service.http.forms import FORM
from service.http.limits import RateLimiter
from service.http.tokens import digest_of

PAGES: list[Page] = []
page = partial(pages.page, PAGES)

TRIES_PER_MINUTE = 10  # of passwords, for one address of e-mail and for one client address
TEXTS = pages.TEXTS["sign_in"]


@dataclass(frozen=True, slots=True)
class SignIn:
    """The parts of the application that sign-in needs."""

    passwords: Passwords
    limiter: RateLimiter


SIGN_IN = web.AppKey("sign_in", SignIn)


def make_sign_in() -> SignIn:
    """Return the state of sign-in in this process."""
    return SignIn(Passwords(), RateLimiter(TRIES_PER_MINUTE))


@page("GET", "/sign-in", right=None)
async def show_sign_in(request: web.Request) -> web.Response:
    """Return the form."""
    return render(request, "sign_in.html", email="", error=None, next=request.query.get("next", ""))


@page("POST", "/sign-in", right=None)
async def sign_in(request: web.Request) -> web.Response:
    """Begin a session. Unknown people and wrong passwords get the same answer in equal time."""
    form = request[FORM]
    email, target = form.get("email", "").strip(), form.get("next", "")
    state = request.app[SIGN_IN]
    _limit(request, email.casefold())
    async with request.app[app_keys.DATABASE].across() as conn:
        user = await sql.user_by_email(conn, email=email)
    password = form.get("password", "")
    is_right = await state.passwords.matches(password, user and user["password_hash"])
    if user is None or not is_right:
        return render(request, "sign_in.html", 401, email=email, error=TEXTS["wrong"], next=target)
    if state.passwords.is_outdated(user["password_hash"]):
        await _store_password(request, user["id"], password)
    return await _begin(request, user["id"], local_path(target))


def _limit(request: web.Request, account: str) -> None:
    """Count a try of a password. Raises TooManyRequests."""
    limiter = request.app[SIGN_IN].limiter
    wait = max(limiter.take(("account", account)), limiter.take(("address", sender_of(request))))
    if wait:
        raise TooManyRequests(TEXTS["too_many"], retry_after(wait))


async def _begin(request: web.Request, user_id: int, target: str) -> web.Response:
    """Begin a session for the person's first company, and go to a page."""
    database, config = request.app[app_keys.DATABASE], request.app[app_keys.CONFIG]
    async with database.across() as conn:
        companies = await sql.user_memberships(conn, user_id=user_id)
    if not companies:
        return render(request, "sign_in.html", 403, email="", error=TEXTS["no_company"], next="")
    token = await begin_session(database, user_id, companies[0]["company_id"])
    response = redirect(target)
    set_cookie(response, config, token)
    return response


@page("POST", "/sign-out")
async def sign_out(request: web.Request) -> web.Response:
    """End the session."""
    async with request.app[app_keys.DATABASE].across() as conn:
        await sql.session_end(conn, token_sha256=request[SESSION].digest)
    response = redirect("/sign-in?notice=signed_out")
    delete_cookie(response, request.app[app_keys.CONFIG])
    return response


@page("GET", "/link/{token}", right=None)
async def show_link(request: web.Request) -> web.Response:
    """Return the form of a one-time link. Opening it does not use it: mail programs do that."""
    link = await _find_link(request)
    return render(request, "link.html", link=link, error=None)


@page("POST", "/link/{token}", right=None)
async def use_link(request: web.Request) -> web.Response:
    """Use a one-time link: store the chosen password if it is for one, and begin a session."""
    link = await _find_link(request)
    form = request[FORM]
    password = form.get("password", "")
    if link["purpose"] == PASSWORD:
        weakness = find_weakness(password, (link["name"], link["email"]))
        if weakness:
            return render(request, "link.html", 422, link=link, error=TEXTS["weak"][weakness])
    async with request.app[app_keys.DATABASE].across() as conn:
        user_id = await sql.link_use(conn, token_sha256=digest_of(request.match_info["token"]))
    if user_id is None:
        raise NotFound(TEXTS["link_gone"])
    if link["purpose"] == PASSWORD:
        await _store_password(request, user_id, password)
    return await _begin(request, user_id, "/")


async def _find_link(request: web.Request) -> dict[str, Any]:
    """Return the link of the path. Raises NotFound if it cannot be used."""
    digest = digest_of(request.match_info["token"])
    async with request.app[app_keys.DATABASE].across() as conn:
        row = await sql.link_get(conn, token_sha256=digest)
    if row is None:
        raise NotFound(TEXTS["link_gone"])
    return dict(row)


async def _store_password(request: web.Request, user_id: int, password: str) -> None:
    """Store a new password, and end the person's sessions."""
    digest = await request.app[SIGN_IN].passwords.hash(password)
    async with request.app[app_keys.DATABASE].across() as conn:
        await sql.user_set_password(conn, user_id=user_id, password_hash=digest)
        await sql.sessions_end(conn, user_id=user_id)


@page("GET", "/password")
async def show_password(request: web.Request) -> web.Response:
    """Return the form for a new password."""
    return render(request, "password.html", error=None)


@page("POST", "/password")
async def change_password(request: web.Request) -> web.Response:
    """Change the password, which ends all sessions, and begin a new session."""
    form, session = request[FORM], request[SESSION]
    if not await _is_password(request, session, form.get("current", "")):
        return render(request, "password.html", 422, error=TEXTS["wrong_current"])
    password = form.get("password", "")
    weakness = find_weakness(password, (session.name, session.email, session.company_name))
    if weakness:
        return render(request, "password.html", 422, error=TEXTS["weak"][weakness])
    await _store_password(request, session.user_id, password)
    return await _renew(request, session, "/?notice=password_changed")


@page("GET", "/confirm")
async def show_confirmation(request: web.Request) -> web.Response:
    """Return the form that asks for the password again."""
    return render(request, "confirm.html", error=None, next=request.query.get("next", "/"))


@page("POST", "/confirm")
async def confirm(request: web.Request) -> web.Response:
    """Begin a new session after the password was entered again."""
    form, session = request[FORM], request[SESSION]
    target = form.get("next", "")
    if not await _is_password(request, session, form.get("password", "")):
        return render(request, "confirm.html", 422, error=TEXTS["wrong_current"], next=target)
    async with request.app[app_keys.DATABASE].across() as conn:
        await sql.session_end(conn, token_sha256=session.digest)
    return await _renew(request, session, local_path(target))


async def _is_password(request: web.Request, session: Session, password: str) -> bool:
    """Return whether a text is the person's password. Raises TooManyRequests."""
    _limit(request, session.email.casefold())
    async with request.app[app_keys.DATABASE].across() as conn:
        user = await sql.user_get(conn, user_id=session.user_id)
    return await request.app[SIGN_IN].passwords.matches(password, user["password_hash"])


async def _renew(request: web.Request, session: Session, target: str) -> web.Response:
    """Begin another session for the same company, and go to a page."""
    database = request.app[app_keys.DATABASE]
    token = await begin_session(database, session.user_id, session.company_id)
    response = redirect(target)
    set_cookie(response, request.app[app_keys.CONFIG], token)
    return response


@page("GET", "/companies")
async def list_companies(request: web.Request) -> web.Response:
    """Return the choice of a company."""
    async with request.app[app_keys.DATABASE].across() as conn:
        companies = await sql.user_memberships(conn, user_id=request[SESSION].user_id)
    return render(request, "companies.html", companies=companies)


@page("POST", "/companies", right=READ)
async def choose_company(request: web.Request) -> web.Response:
    """Show another company of the person from now on."""
    form, session = request[FORM], request[SESSION]
    company = read_number(form.get("company", ""), 18)
    if company is None:
        raise NotFound(TEXTS["no_such_company"])
    async with request.app[app_keys.DATABASE].across() as conn:
        await sql.session_set_company(
            conn,
            token_sha256=session.digest,
            user_id=session.user_id,
            company=company,
        )
    return redirect("/")
