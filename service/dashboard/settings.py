"""The settings as a table: what a page shows, what its forms run, and where they lead.

A form that changes secrets or roles needs a recent password. It leads back to its page, with a
notice or with the secret that was made. If it is refused, the page is shown again with the entries,
but without secrets.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlencode

from aiohttp import web

from service.dashboard import people
from service.dashboard.operations import Answer, Failed, call
from service.dashboard.pages import PAGES, PageRoute, redirect, render
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
Read = Callable[[web.Request], Awaitable[JsonMapping]]
#: Runs what a form is for. None: it is done.
Run = Callable[[web.Request], Awaitable[Answer | FormRefusal | None]]
#: Shows a page again after a refusal.
Show = Callable[[web.Request, FormRefusal], Awaitable[web.Response]]


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


def declare(path: str, template: str, read: Read, *actions: Action) -> None:
    """Declare a page with its forms. `read` returns the values of its template."""
    show = partial(_show, template, read)
    PAGES.append(PageRoute("GET", _make_route(path), show, ADMINISTER))
    for action in actions:
        place, handler = _make_route(path + action.path), partial(_act, path, show, action)
        return_to = path if action.needs_password else None
        PAGES.append(PageRoute("POST", place, handler, ADMINISTER, return_to))


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
            by=request[SESSION].user_id,
        )
        if method == "POST":
            return await call_once(request, method, target, body)
        return await call(request, method, target, body)

    return run


async def _show(
    template: str, read: Read, request: web.Request, refusal: FormRefusal = NO_REFUSAL
) -> web.Response:
    entered = request.get(FORM, NO_FORM)
    values = {"refusal": refusal, "entered": entered, **await read(request)}
    return await render(request, template, refusal.status, **values)


async def _act(path: str, show: Show, action: Action, request: web.Request) -> web.Response:
    """Run the form, and go where it leads, or show the page of the path again."""
    outcome = await action.run(request)
    if isinstance(outcome, Answer) and not outcome.is_success:
        outcome = _read_refusal(request, outcome)
    if isinstance(outcome, FormRefusal):
        return await show(request, outcome)
    place = (action.leads_to or path).format(**request.match_info)
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
