"""The settings page of the connection to the portal, with a test of it.

The credentials are the operator's, who is the intermediary of all companies or serves one company:
no page shows or changes them.
"""

from functools import partial

from aiohttp import web

from service.dashboard import pages
from service.dashboard.operations import read
from service.dashboard.pages import Page, render
from service.dashboard.sessions import ADMINISTER
from service.documents.ubl import parties
from service.errors import ApiError, UnknownTin
from service.http import app_keys
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.tin_checks import TIN_CHECKS, TinQuestion

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

PLACE = "/settings/portal"
TEXTS = pages.TEXTS["settings"]["portal"]


@page("GET", PLACE)
async def show_portal(
    request: web.Request, is_working: bool | None = None, reason: str | None = None
) -> web.Response:
    """Return how the company is connected, and the outcome of a test if there was one."""
    config = request.app[app_keys.CONFIG]
    return render(
        request,
        "settings_portal.html",
        company=(await read(request, "/api/companies"))["data"],
        address=config.portal_api_base,
        is_live=config.has_live_portal,
        is_intermediary=config.portal_intermediary,
        version=config.portal_document_version,
        unreachable_since=request.app[SUBMISSION_CONTEXT].shared_portal.unreachable_since,
        is_working=is_working,
        reason=reason,
    )


@page("POST", PLACE)
async def test_portal(request: web.Request) -> web.Response:
    """Ask the portal for the company's own TIN, signed in as for its documents."""
    company = (await read(request, "/api/companies"))["data"]
    question = TinQuestion(
        request[app_keys.COMPANY],
        parties.get_own_tin({"tin": company["tin_code"]}),
        company["registration_type"],
        parties.normalize_identifier(company["registration_number"]),
    )
    try:
        await request.app[TIN_CHECKS].confirm(question, request[app_keys.KEY_ID], fresh=True)
    except UnknownTin:
        reason = TEXTS["unknown_tin"].format(
            tin=company["tin_code"],
            kind=company["registration_type"],
            number=company["registration_number"],
        )
        return await show_portal(request, False, reason)
    except ApiError as error:
        return await show_portal(request, False, str(error))
    return await show_portal(request, True)
