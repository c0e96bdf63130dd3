"""The settings as a table: what a page shows, what its forms run, and where they lead.

A form that changes secrets or roles needs a recent password. It leads back to its page, with a
notice or with the secret that was made. If it is refused, the page is shown again with the entries,
but without secrets.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlencode

from aiohttp import web

from service.dashboard import people
from service.dashboard.operations import Answer, Failed, call
from service.dashboard.pages import PageRoute, redirect, render
from service.dashboard.repetition import call_once, show_secrets
from service.dashboard.sessions import ADMINISTER, SESSION
from service.http import app_keys
from service.http.forms import FORM, NO_FORM, FormFields
from service.json_types import JsonMapping


@dataclass(frozen=True, slots=True)
class FormRefusal:
    """Why a page is shown again: messages at its fields, and the message of any other error."""

    status: int = 200
    wrong: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None


NO_REFUSAL = FormRefusal()
#: Runs what a form is for. None: it is done.
Run = Callable[[web.Request], Awaitable[Answer | FormRefusal | None]]


@dataclass(frozen=True, slots=True)
class Action:
    """A form: its path after that of the page, what it runs, and the notice that follows.

    Without a notice, and after a creation, the page shows the secret that was made. `leads_to` is
    the path of another page.
    """

    path: str
    run: Run
    notice: str = ""
    leads_to: str = ""
    needs_password: bool = True


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """A page: its path, its template and the values of it, and its forms."""

    path: str
    template: str
    read: Callable[[web.Request], Awaitable[JsonMapping]]
    actions: Sequence[Action] = ()


def make_pages(*table: SettingsPage) -> list[PageRoute]:
    pages: list[PageRoute] = []
    for each in table:
        pages.append(PageRoute("GET", _make_route(each.path), partial(_show, each), ADMINISTER))
        for action in each.actions:
            path, handler = _make_route(each.path + action.path), partial(_act, each, action)
            return_to = each.path if action.needs_password else None
            pages.append(PageRoute("POST", path, handler, ADMINISTER, return_to))
    return pages


def _make_route(path: str) -> str:
    return path.replace("{id}", "{id:[0-9]{1,18}}")


def operation(
    method: str, path: str, read_body: Callable[[FormFields], object] = lambda _: {}
) -> Run:
    """Return what runs an operation of the API. A POST is run once for the form.

    What it changes outlives the role of the person, and a test at the portal takes a while.
    """

    async def run(request: web.Request) -> Answer:
        target, body = path.format(**request.match_info), read_body(request[FORM])
        request[app_keys.CHECK_ROLE] = partial(
            people.check_administers,
            company_id=request[app_keys.COMPANY],
            by=request[SESSION].user_id,
        )
        if method == "POST":
            return await call_once(request, method, target, body)
        return await call(request, method, target, body)

    return run


async def _show(
    page: SettingsPage, request: web.Request, refusal: FormRefusal = NO_REFUSAL
) -> web.Response:
    entered = request.get(FORM, NO_FORM)
    values = {"refusal": refusal, "entered": entered, **await page.read(request)}
    return await render(request, page.template, refusal.status, **values)


async def _act(page: SettingsPage, action: Action, request: web.Request) -> web.Response:
    """Run the form, and go where it leads, or show the page again."""
    outcome = await action.run(request)
    if isinstance(outcome, Answer) and not outcome.is_success:
        outcome = _read_refusal(request, outcome)
    if isinstance(outcome, FormRefusal):
        return await _show(page, request, outcome)
    place = (action.leads_to or page.path).format(**request.match_info)
    if outcome and (not action.notice or outcome.status == 201):
        return show_secrets(request, place, **request.match_info)
    notice = "sent_before" if outcome and outcome.is_replayed else action.notice
    return redirect(f"{place}?{urlencode({**request.query, 'notice': notice})}")


def _read_refusal(request: web.Request, answer: Answer) -> FormRefusal:
    """Return the error of an operation, with the violations by the fields of the form.

    Raises Failed if the record of the path is unknown, or the person has lost the role.
    """
    if answer.status == 403 or (answer.status == 404 and request.match_info):
        raise Failed(answer)
    wrong: dict[str, str] = {}
    for path, message in answer.violations.items():
        name = next((part for part in path.split("/") if part in request[FORM]), "")
        wrong.setdefault(name, message)
    is_at_fields = bool(wrong) and "" not in wrong
    return FormRefusal(answer.status, wrong, None if is_at_fields else answer.message)
