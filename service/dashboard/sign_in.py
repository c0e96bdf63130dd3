"""Sign-in by password or one-time link, sign-out, the password, and the choice of a company."""

from collections.abc import Iterable
from dataclasses import replace

from aiohttp import web

from service.dashboard import links, pages, people
from service.dashboard.links import BLOCKED, CHOOSE, CONFIRM, ENTER, Link, Role
from service.dashboard.pages import FORM_TOKEN, local_path, page, redirect, render
from service.dashboard.passwords import find_weakness, hash_password, matches_hash
from service.dashboard.sessions import (
    NO_COMPANY,
    PERSON,
    SESSION,
    NewSession,
    Session,
    SignInNeeded,
    begin_session,
    cookie_name,
    get_session,
    is_secure,
    read_form_token,
    set_cookie,
)
from service.db.statements import sql
from service.errors import ApiError, NotFound, TooManyRequests, Unauthorized, retry_after
from service.http import app_keys
from service.http.access import identify, run_shared
from service.http.client_address import SENDER
from service.http.forms import FORM, SESSION_FORM, FormFields, parse_form, read_number
from service.http.tokens import digest_of
from service.json_types import JsonMapping
from service.offload import offload, run_in_thread

TEXTS = pages.TEXTS["sign_in"]


@page("GET", "/sign-in", right=None)
async def show_sign_in(request: web.Request) -> web.Response:
    target = request.query.get("next", "")
    return await render(request, "sign_in.html", email="", error=None, next=target, carried="")


async def _ask_again(
    request: web.Request, template: str, error: ApiError, **values: str
) -> web.Response:
    """Return a form that asks for a password again, with the form that it carries."""
    form = request[FORM]
    values |= {"next": form.get("next", ""), "carried": form.get("carried", "")}
    response = await render(request, template, error.status, error=error.message, **values)
    response.headers.update(error.headers)
    return response


@page("POST", "/sign-in", right=None)
async def sign_in(request: web.Request) -> web.Response:
    """Begin a session. Unknown people and wrong passwords get the same answer in equal time."""
    form = request[FORM]
    email, password = form.get("email", "").strip(), form.get("password", "")
    try:
        user = await _find_user(request, email, password)
        if user is None:
            raise Unauthorized(TEXTS["wrong"])
    except (TooManyRequests, Unauthorized) as error:
        return await _ask_again(request, "sign_in.html", error, email=email)
    identify(request, f"user {user['id']}")
    entry = NewSession(user["id"], user["password_hash"], None, "sign_in")
    return await _enter_with_form(request, entry, user["form_secret"])


async def _enter_with_form(request: web.Request, entry: NewSession, secret: bytes) -> web.Response:
    """Begin a session, and go on, or show the form that is carried, to be sent by a click.

    Only the person who has filled it in sees it, and in the company for which it was opened.
    Other forms are left out: one may have been forged. Raises TooLarge and BadRequest.
    """
    text = request[FORM].get("carried", "")
    target = local_path(request[FORM].get("next"))
    if not text:
        return await _enter(request, entry, target)
    fields = await offload(len(text), parse_form, text.encode(), SESSION_FORM)
    company_id = read_form_token(secret, fields.get(FORM_TOKEN, ""))
    companies = await run_shared(request, links.read_companies, user_id=entry.user_id)
    known = {NO_COMPANY, *companies}
    if company_id not in known or (entry.company_id or company_id) != company_id:
        return await _enter(request, entry, "/?notice=form_left_out")
    response = await _enter(request, replace(entry, company_id=company_id or None), "/")
    return await _show_carried(request, response, target, fields)


async def _show_carried(
    request: web.Request, entered: web.Response, target: str, fields: FormFields
) -> web.Response:
    """Return the page from which a form is sent, with the cookie of the session that has begun."""
    token = entered.cookies[cookie_name(request)].value
    session = await get_session(request.app[app_keys.DATABASE], token)
    if session is None:
        raise SignInNeeded
    request[SESSION] = session
    response = await render(request, "carried.html", target=target, fields=fields)
    response.cookies.update(entered.cookies)
    return response


async def _find_user(request: web.Request, email: str, password: str) -> JsonMapping | None:
    """Return the person with an email address and a password, or None.

    Unknown people and wrong passwords take equal time and get equal errors. Once the tries of all
    networks are used up, the password is only right from a network of the person, and any other
    try is refused as it would be for an unknown person. Raises TooManyRequests.
    """
    if not people.is_email(email):
        return None
    tries, sender = request.app[app_keys.LIMITS].tries, request[SENDER]
    _refuse(tries.take(sender.group))
    user = await run_shared(request, sql.user_account, email=email)
    account = user["account"]
    _refuse(tries.take((account, sender.network)))
    wait = request.app[app_keys.LIMITS].account_tries.take(account)
    is_allowed = not wait or await _is_near(request, user["id"])
    is_right = await matches_hash(password, user["password_hash"])
    if is_right and is_allowed:
        return user
    _refuse(wait)
    async with request.app[app_keys.DATABASE].person() as conn:
        await sql.user_fail(conn, user_id=user["id"])
    return None


def _refuse(wait: int) -> None:
    """Raise TooManyRequests if there are seconds to wait."""
    if wait:
        raise TooManyRequests(TEXTS["too_many"], retry_after(wait))


async def _is_near(request: web.Request, user_id: int | None) -> bool:
    """Return whether the person has signed in from the client's network before."""
    network = request[SENDER].network
    if network is None:
        return False
    return await run_shared(
        request, sql.user_is_near, user_id=user_id, first=network[0], last=network[-1]
    )


async def _enter(request: web.Request, entry: NewSession, target: str) -> web.Response:
    """Begin a session, and go to a page. Without a company it shows the person's first one.

    Raises SignInNeeded if the password has changed since it was checked.
    """
    if entry.company_id is None:
        companies = await run_shared(request, links.read_companies, user_id=entry.user_id)
        entry = replace(entry, company_id=next(iter(companies), None))
    token = await begin_session(request.app[app_keys.DATABASE], entry)
    response = redirect(target)
    set_cookie(request, response, cookie_name(request), token)
    return response


@page("POST", "/sign-out", right=PERSON)
async def sign_out(request: web.Request) -> web.Response:
    session = request[SESSION]
    await run_shared(request, sql.session_end, user_id=session.user_id, id=session.id)
    response = redirect("/sign-in?notice=signed_out")
    response.del_cookie(cookie_name(request), secure=is_secure(request), httponly=True)
    return response


@page("GET", "/link/{token}", right=None)
async def show_link(request: web.Request) -> web.Response:
    """Return the form of a one-time link. Opening it does not use it: mail programs do that."""
    return await _render_link(request, await _find_link(request))


@page("POST", "/link/{token}", right=None)
async def use_link(request: web.Request) -> web.Response:
    """Use a one-time link: accept or refuse its role, store a chosen password, begin a session.

    A second click, whose first one has used the link, signs in with the same password.
    """
    try:
        return await _use_link(request)
    except NotFound:
        form = request[FORM]
        user = await _find_user(request, form.get("username", ""), form.get("password", ""))
        if user is None:
            raise
    identify(request, f"user {user['id']}")
    return await _enter(
        request, NewSession(user["id"], user["password_hash"], None, "sign_in"), "/"
    )


async def _use_link(request: web.Request) -> web.Response:
    link = await _find_link(request)
    database = request.app[app_keys.DATABASE]
    if request[FORM].get("do") == "refuse" and link.is_refusable:
        await links.refuse_role(database, link)
        return redirect("/sign-in?notice=role_refused")
    password = request[FORM].get("password", "")
    if error := await _find_link_error(request, link, password):
        return await _render_link(request, link, error)
    digest = await hash_password(password) if link.step == CHOOSE else None
    identify(request, f"user {link.user_id}")
    await links.use_link(database, link, digest)
    present = digest or link.password_hash
    entry = NewSession(link.user_id, present, link.company_id, None, link.step != ENTER)
    return await _enter(request, entry, "/" if len(link.roles) == 1 and link.role else "/companies")


async def _find_link(request: web.Request) -> Link:
    """Return the link of the path. Raises NotFound if it cannot be used."""
    digest = digest_of(request.match_info["token"])
    link = await run_shared(request, links.find_link, digest=digest)
    if link is None:
        raise NotFound(TEXTS["link_gone"])
    return link


async def _find_link_error(request: web.Request, link: Link, password: str) -> str | None:
    """Return why a link cannot be used with a password, or None. Raises TooManyRequests."""
    if link.step == BLOCKED:
        return TEXTS["link_blocked"]
    if link.step == CHOOSE:
        return await _find_weakness(request, password, link, link.roles)
    if link.step == CONFIRM:
        user = await _find_user(request, link.email, password)
        return None if user else TEXTS["wrong_current"]
    return None


async def _find_weakness(
    request: web.Request, password: str, person: Link | Session, roles: Iterable[Role]
) -> str | None:
    """Return why a new password of a person with these roles is too weak, or None.

    It takes a while to judge a password. Raises TooManyRequests.
    """
    _refuse(request.app[app_keys.LIMITS].tries.take(request[SENDER].group))
    names = [person.name, person.email, *(role.company_name for role in roles)]
    weakness = await run_in_thread(find_weakness, password, names)
    return TEXTS["weak"][weakness] if weakness else None


async def _render_link(request: web.Request, link: Link, error: str | None = None) -> web.Response:
    return await render(request, "link.html", 422 if error else 200, link=link, error=error)


@page("GET", "/password", right=PERSON)
async def show_password(request: web.Request) -> web.Response:
    return await _render_password(request)


@page("POST", "/password", right=PERSON)
async def change_password(request: web.Request) -> web.Response:
    """Change the password, which ends all sessions, and begin a new session.

    A person who signed in by a link without a password chooses the first one.
    """
    form, session = request[FORM], request[SESSION]
    if session.has_password and not await _find_user(
        request, session.email, form.get("current", "")
    ):
        return await _render_password(request, TEXTS["wrong_current"])
    password = form.get("password", "")
    roles = await run_shared(request, links.read_roles, user_id=session.user_id)
    if error := await _find_weakness(request, password, session, roles):
        return await _render_password(request, error)
    digest = await hash_password(password)
    database = request.app[app_keys.DATABASE]
    await links.change_password(database, session, digest)
    entry = NewSession(session.user_id, digest, session.company_id, None)
    notice = "password_changed" if session.has_password else "password_chosen"
    return await _enter(request, entry, f"/?notice={notice}")


async def _render_password(request: web.Request, error: str | None = None) -> web.Response:
    return await render(request, "password.html", 422 if error else 200, error=error)


@page("GET", "/confirm", right=PERSON)
async def show_confirmation(request: web.Request) -> web.Response:
    """Return the form that asks for the password again, or chooses the first one."""
    if not request[SESSION].has_password:
        return redirect("/password")
    target = request.query.get("next", "/")
    return await render(request, "confirm.html", error=None, next=target, carried="")


@page("POST", "/confirm", right=PERSON)
async def confirm(request: web.Request) -> web.Response:
    """Begin a new session after the password was entered again."""
    session = request[SESSION]
    try:
        user = await _find_user(request, session.email, request[FORM].get("password", ""))
        if user is None:
            raise Unauthorized(TEXTS["wrong_current"])
    except (TooManyRequests, Unauthorized) as error:
        return await _ask_again(request, "confirm.html", error)
    entry = NewSession(session.user_id, user["password_hash"], session.company_id, "confirm")
    response = await _enter_with_form(request, entry, session.form_secret)
    await run_shared(request, sql.session_end, user_id=session.user_id, id=session.id)
    return response


@page("GET", "/companies", right=PERSON)
async def list_companies(request: web.Request) -> web.Response:
    roles = await run_shared(request, links.read_roles, user_id=request[SESSION].user_id)
    return await render(request, "companies.html", roles=roles)


async def _show_company(request: web.Request, company: int | None) -> int | None:
    """Show a company from now on. Return None if the person has no accepted role in it."""
    session = request[SESSION]
    key = {"token_sha256": session.digest, "user_id": session.user_id}
    return await run_shared(request, sql.session_set_company, **key, company=company)


@page("POST", "/companies", right=PERSON)
async def choose_company(request: web.Request) -> web.Response:
    company = read_number(request[FORM].get("company", ""), 18)
    if company is None or await _show_company(request, company) is None:
        raise NotFound(TEXTS["no_such_company"])
    return redirect("/")


@page("POST", "/companies/{id:[0-9]{1,18}}/leave", right=PERSON)
async def leave_company(request: web.Request) -> web.Response:
    session, company = request[SESSION], int(request.match_info["id"])
    await people.leave(request.app[app_keys.DATABASE], company, session.user_id)
    if company == session.company_id:
        companies = await run_shared(request, links.read_companies, user_id=session.user_id)
        await _show_company(request, next(iter(companies), None))
    return redirect("/companies?notice=left")
