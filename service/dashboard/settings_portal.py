"""The settings page of the connection to the portal: a test, and the company's own credentials.

The operator's credentials are on no page, and no page contains a secret that was entered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from service.api.portal_credentials import PATH as API
from service.dashboard import pages
from service.dashboard.operations import Answer, call, read, read_if_any
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import ADMINISTER
from service.errors import ApiError, UnknownTin
from service.http import app_keys
from service.http.forms import FORM
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.tin_checks import TIN_CHECKS, make_own_question

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

PLACE = "/settings/portal"
TEXTS = pages.TEXTS["settings"]["portal"]
#: Fields of the form, at which violations are shown.
FIELDS = ("client_id", "client_secret")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a form: why the test failed, or the error of an operation.

    `client_id` is the entry of the form.
    """

    status: int = 200
    reason: str | None = None
    message: str | None = None
    wrong: Mapping[str, str] = field(default_factory=dict)
    client_id: str = ""


NO_OUTCOME = Outcome()


@page("GET", PLACE)
async def show_portal(request: web.Request) -> web.Response:
    """Return how the company is connected."""
    return await _render(request, await _read_company(request), NO_OUTCOME)


@page("POST", PLACE)
async def test_portal(request: web.Request) -> web.Response:
    """Ask the portal for the company's own TIN, signed in as for its documents."""
    company = await _read_company(request)
    reason = await _find_problem(request, company)
    if reason is None:
        return redirect(f"{PLACE}?notice=portal_works")
    return await _render(request, company, Outcome(reason=reason))


@page("POST", f"{PLACE}/credentials", return_to=PLACE)
async def store_credentials(request: web.Request) -> web.Response:
    """Test and store the company's own credentials, or show why they are refused."""
    form = request[FORM]
    body = {name: form.get(name, "").strip() for name in FIELDS}
    answer = await call(request, "PUT", API, body)
    if answer.is_success:
        return redirect(f"{PLACE}?notice=portal_credentials_stored")
    return await _show_refusal(request, answer, body["client_id"])


@page("POST", f"{PLACE}/credentials/remove", return_to=PLACE)
async def remove_credentials(request: web.Request) -> web.Response:
    """Remove the company's own credentials: the operator's client is used again."""
    answer = await call(request, "DELETE", API)
    if answer.is_success:
        return redirect(f"{PLACE}?notice=portal_credentials_removed")
    return await _show_refusal(request, answer)


async def _read_company(request: web.Request) -> Mapping[str, Any]:
    return (await read(request, "/api/companies"))["data"]


async def _find_problem(request: web.Request, company: Mapping[str, Any]) -> str | None:
    """Return why the portal does not know the company's TIN, or None if it does."""
    question = make_own_question(request[app_keys.COMPANY], company)
    try:
        await request.app[TIN_CHECKS].confirm(question, fresh=True)
    except UnknownTin:
        return TEXTS["unknown_tin"].format(
            tin=company["tin_code"],
            kind=company["registration_type"],
            number=company["registration_number"],
        )
    except ApiError as error:
        return str(error)
    return None


async def _show_refusal(request: web.Request, answer: Answer, client_id: str = "") -> web.Response:
    wrong = {path.strip("/"): message for path, message in answer.violations.items()}
    is_at_fields = bool(wrong) and wrong.keys() <= set(FIELDS)
    message = None if is_at_fields else answer.message
    outcome = Outcome(answer.status, message=message, wrong=wrong, client_id=client_id)
    return await _render(request, await _read_company(request), outcome)


async def _render(
    request: web.Request, company: Mapping[str, Any], outcome: Outcome
) -> web.Response:
    config = request.app[app_keys.CONFIG]
    return render(
        request,
        "settings_portal.html",
        outcome.status,
        company=company,
        credentials=await read_if_any(request, API),
        address=config.portal_api_base,
        is_live=config.has_live_portal,
        is_intermediary=config.portal_intermediary,
        version=config.portal_document_version,
        unreachable_since=request.app[SUBMISSION_CONTEXT].shared_portal.unreachable_since,
        outcome=outcome,
    )
