"""Pages of the dashboard: their routes, sign-in, protection of forms, and rendering.

A module with pages declares each with the decorator `page`. A page needs a session unless it is
public, and a POST needs the form token of the person.

A form of a person whose session has ended, or whose password is needed again, is carried: the
fields are hidden in the form that asks for the password. Afterwards they are shown to the person
who filled them in, to be sent by a click. The form token tells who that is.
"""

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import PurePath
from typing import TypeVar
from urllib.parse import quote, urlencode

import jinja2
from aiohttp import web
from markupsafe import Markup

from service import templates
from service.dashboard import activity, formats, sessions
from service.dashboard.formats import FOLDER, TEXTS
from service.dashboard.operations import answer_bytes
from service.dashboard.sessions import NO_COMPANY, PERSON, READ, SESSION, Session, SignInNeeded
from service.errors import Forbidden, TooManyRequests, retry_after
from service.fair_queue import CLIENT
from service.http import app_keys
from service.http.access import identify, zone_of
from service.http.error_responses import error_response
from service.http.forms import (
    CARRIER_FORM,
    FORM,
    PUBLIC_FORM,
    SESSION_FORM,
    FormFields,
    read_form,
)
from service.http.responses import compress_fixed
from service.http.tokens import make_token
from service.offload import offload, turn

#: Nothing is loaded from elsewhere, and no script or style is part of a page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FORM_TOKEN = "form_token"
#: The pages whose forms carry another form while they ask for a password.
CARRIERS = ("/sign-in", "/confirm")
#: Fields that no page may contain.
SECRET_FIELDS = {"password", "current", "key", "client_secret"}
#: The hidden field of a form with the key of what it creates, see repetition.py.
FORM_KEY = "form_key"
#: The cookie of a visitor without a session, whose forms are protected in the same way.
VISITOR = "einvoice_visitor"
VISITOR_TOKEN = web.RequestKey("visitor_token", str)
#: Browsers read a backslash as a slash and leave out control characters: `/\thost` is `//host`.
_LOCAL_PATH = re.compile(r"/(?!/)[^\x00-\x1f\x7f-\x9f\\]{,2000}")  # proxies limit heads

PageHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., Awaitable[web.StreamResponse]])


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A route of the dashboard. `right` is what the role must have, None for a public page.

    A form that changes secrets or roles has `return_to`: the path of its page, to which the person
    returns after entering the password again, unless it was entered a short time ago. A stream
    takes as long as its client reads.
    """

    method: str
    path: str
    handler: PageHandler
    right: str | None
    return_to: str | None = None
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence about what a form has led to. `kind` is good or warn."""

    text: str
    kind: str


#: The pages of all modules, which declare them when they are imported.
PAGES: list[PageRoute] = []


def page(
    method: str, path: str, right: str | None = READ, is_stream: bool = False
) -> Callable[[AnyHandler], AnyHandler]:
    """Return the decorator that declares the page of a handler."""

    def declare(handler: AnyHandler) -> AnyHandler:
        PAGES.append(PageRoute(method, path, handler, right, is_stream=is_stream))
        return handler

    return declare


def make_routes() -> list[web.RouteDef]:
    return [web.RouteDef(each.method, each.path, partial(_handle, each), {}) for each in PAGES]


async def _handle(page: PageRoute, request: web.Request) -> web.StreamResponse:
    """Run a page, or ask the person to sign in. Errors become pages."""
    try:
        try:
            return await _run(page, request)
        except SignInNeeded:
            return await _ask_to_sign_in(request)
    except Exception as error:
        return render_error(error, request)


async def _run(page: PageRoute, request: web.Request) -> web.StreamResponse:
    """Check the session and the form, and run the handler. Raises SignInNeeded and ApiError."""
    if page.right is None:
        identify(request, "visitor")
    else:
        session = await _enter(request)
        if page.right != PERSON and session.company_id is None:
            return redirect("/companies")
        if not session.may(page.right):
            raise Forbidden(TEXTS["errors"]["no_right"])
    if request.method == "POST":
        await _check_form(page, request)
    # A company reads pages one after another: they may show large documents.
    is_in_turn = page.method == "GET" and page.right is not None and not page.is_stream
    async with turn() if is_in_turn else nullcontext():
        if page.return_to is not None and not request[SESSION].is_recent:
            return await _ask_to_confirm(request, page.return_to.format(**request.match_info))
        return await page.handler(request)


async def _enter(request: web.Request) -> Session:
    """Return the session of the request. Raises SignInNeeded and TooManyRequests."""
    app = request.app
    token = request.cookies.get(sessions.cookie_name(request))
    session = await sessions.get_session(app[app_keys.DATABASE], token) if token else None
    if session is None:
        raise SignInNeeded
    request[SESSION] = session
    if session.company_id is not None:
        request[app_keys.COMPANY] = session.company_id
    actor = f"user {session.user_id}"
    client = session.company_id or actor
    CLIENT.set(client)
    request[app_keys.KEY_ID] = f"user:{session.user_id}"
    identify(request, actor)
    # Apart from requests with keys, so that no flood by an integration locks people out.
    if wait := app[app_keys.LIMITS].requests.take(("pages", client)):
        raise TooManyRequests(TEXTS["errors"]["too_many"], retry_after(wait))
    return session


async def _check_form(page: PageRoute, request: web.Request) -> None:
    """Raise Forbidden unless a POST comes from a form of this visitor, or person and company.

    Forms of the person alone are accepted for each company.
    """
    _check_origin(request)
    session = request.get(SESSION)
    limits = PUBLIC_FORM if session is None else SESSION_FORM
    form = await read_form(request, CARRIER_FORM if page.path in CARRIERS else limits)
    company_id = sessions.read_form_token(_form_secret(request), form.get(FORM_TOKEN, ""))
    if company_id is None:
        raise Forbidden(TEXTS["errors"]["form_rejected"])
    if session and page.right != PERSON and company_id != session.company_id:
        raise Forbidden(TEXTS["errors"]["other_company"])


def _check_origin(request: web.Request) -> None:
    """Raise Forbidden for a form that a browser sends from another site."""
    origin = request.headers.get("Origin")
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none") or (
        origin is not None and origin.partition("://")[2] != request.host
    ):
        raise Forbidden(TEXTS["errors"]["form_rejected"])


def _form_secret(request: web.Request) -> bytes:
    """Return the secret of the forms of the person, or of the visitor without a session."""
    session = request.get(SESSION)
    return session.form_secret if session else _visitor_token(request).encode("utf-8", "replace")


def _visitor_token(request: web.Request) -> str:
    """Return the random text that identifies a visitor without a session."""
    if VISITOR_TOKEN not in request:
        request[VISITOR_TOKEN] = request.cookies.get(VISITOR) or make_token()
    return request[VISITOR_TOKEN]


async def _ask_to_sign_in(request: web.Request) -> web.Response:
    """Return the form to sign in, with the fields of the form that was sent without a session.

    Nothing is known of who has sent it. It is checked after the sign-in.
    """
    path = local_path(request.path_qs)
    if request.method == "GET":
        return redirect("/sign-in" if path == "/" else f"/sign-in?next={quote(path, safe='')}")
    _check_origin(request)
    carried = await _carry(await read_form(request, SESSION_FORM))
    if carried is None or request.path == "/sign-out":
        return redirect("/sign-in")
    values = {"email": "", "error": None, "next": path, "carried": carried}
    return await render(request, "sign_in.html", 401, **values)


async def _ask_to_confirm(request: web.Request, path: str) -> web.Response:
    """Return the form that asks for the password again, with the fields of the form.

    A person without a password goes to the form that chooses the first one.
    """
    carried = await _carry(request[FORM]) if request[SESSION].has_password else None
    if carried is None:
        return redirect(confirmation_path(path))
    target = local_path(request.path_qs)
    return await render(request, "confirm.html", 401, error=None, next=target, carried=carried)


async def _carry(form: FormFields) -> str | None:
    """Return the fields of a form as a text, or None if no page may contain them."""
    if SECRET_FIELDS & form.keys():
        return None
    size = sum(map(len, form.values()))
    return await offload(size, urlencode, list(form.items()), safe="/")


def redirect(path: str) -> web.Response:
    """Return a redirect to a page, which the browser gets with GET."""
    return web.Response(status=303, headers={"Location": path, **HEADERS})


def confirmation_path(path: str) -> str:
    """Return the path of the form that asks for the password again and then opens a page."""
    return f"/confirm?next={quote(path, safe='/')}"


def local_path(text: str | None) -> str:
    """Return a path of this site to go to after sign-in; the start page for anything else."""
    return text if text and _LOCAL_PATH.fullmatch(text) else "/"


async def render(
    request: web.Request, template: str, status: int = 200, **values: object
) -> web.Response:
    """Return a page. That of a large document is made in the thread."""
    return await offload(answer_bytes(request), _make_page, request, template, status, **values)


def _make_page(request: web.Request, template: str, status: int, **values: object) -> web.Response:
    session: Session | None = request.get(SESSION)
    company_id = (session and session.company_id) or NO_COMPANY
    text = templates.render(
        _environment(),
        template,
        **{"notice": find_notice(request), **values},
        session=session,
        form_token=sessions.make_form_token(_form_secret(request), company_id),
        path=request.path,
        is_posted=request.method == "POST",
        zone=zone_of(request),
        may=session.may if session else lambda _: False,
    )
    response = web.Response(
        text=text, status=status, content_type="text/html", charset="utf-8", headers=HEADERS
    )
    if session is None and request.cookies.get(VISITOR) != _visitor_token(request):
        sessions.set_cookie(request, response, VISITOR, _visitor_token(request))
    return response


#: Notices of what was not done.
WARNINGS = ("form_left_out", "approve_alone")


def find_notice(request: web.Request) -> Notice | None:
    """Return the sentence about the form that has led to the page."""
    name = request.query.get("notice", "")
    text = TEXTS["notices"].get(name)
    return text and Notice(text, "warn" if name in WARNINGS else "good")


def render_error(error: Exception, request: web.Request) -> web.Response:
    """Return the page of an error. An unexpected error is logged as for the API."""
    answer = error_response(error, request)
    body = json.loads(answer.text or "{}")
    message = body.get("message") or TEXTS["errors"]["invalid"]
    if isinstance(error, web.HTTPNotFound | web.HTTPMethodNotAllowed):
        message = TEXTS["errors"]["no_page"]
    response = _make_page(
        request,
        "error.html",
        answer.status,
        code=answer.status,
        message=message,
        violations=body.get("errors", []),
        request_id=request[app_keys.REQUEST_ID],
        own_page=request.path if app_keys.LINK in request else None,
    )
    for name in answer.headers.keys() & {"Allow", "Retry-After"}:
        response.headers[name] = answer.headers[name]
    return response


@cache
def _environment() -> jinja2.Environment:
    return templates.make_environment(
        FOLDER / "templates",
        (*formats.FILTERS, activity.describe, activity.describe_changes, fill),
        t=TEXTS,
        asset=asset_path,
        confirmation=confirmation_path,
        new_key=make_token,
    )


def fill(text: str, **values: object) -> Markup:
    """Insert values into a text of TEXTS. The values are escaped."""
    return Markup(text).format(**values)


@cache
def _read_assets() -> dict[str, bytes]:
    """Return the files in assets/ by their paths, which name the version: browsers may keep it."""
    files = {path.name: path.read_bytes() for path in (FOLDER / "assets").iterdir()}
    return {
        f"/assets/{sha256(content).hexdigest()[:12]}/{name}": content
        for name, content in files.items()
    }


def asset_path(name: str) -> str:
    return next(path for path in _read_assets() if path.endswith(f"/{name}"))


async def get_asset(request: web.Request) -> web.Response:
    content = _read_assets().get(request.path)
    if content is None:
        raise web.HTTPNotFound
    response = web.Response(
        body=content,
        content_type=TYPES[PurePath(request.path).suffix],
        charset="utf-8",
        headers={"Cache-Control": "public, max-age=31536000, immutable"},
    )
    return compress_fixed(request, response)
