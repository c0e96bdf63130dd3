"""Settings of the certificate that signs the company's documents.

The entries of the form are secret: no page contains them, also not after a violation.
"""

from functools import partial

from aiohttp import web

from service.dashboard import pages
from service.dashboard.operations import Answer, call, read_if_any
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import ADMINISTER
from service.http.forms import FORM

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

API = "/api/companies/signing-certificate"
PLACE = "/settings/certificate"
#: Fields of the form, at which violations are shown.
FIELDS = ("certificate", "key", "password")


@page("GET", PLACE)
async def show_certificate(request: web.Request, refused: Answer | None = None) -> web.Response:
    """Return the certificate and the form of a new one. `refused` is the error of an operation."""
    violations = refused.violations if refused else {}
    wrong = {path.strip("/"): message for path, message in violations.items()}
    is_at_fields = bool(wrong) and wrong.keys() <= set(FIELDS)
    return render(
        request,
        "settings_certificate.html",
        refused.status if refused else 200,
        certificate=await read_if_any(request, API),
        wrong=wrong,
        message=refused.message if refused and not is_at_fields else None,
    )


@page("POST", PLACE, return_to=PLACE)
async def store_certificate(request: web.Request) -> web.Response:
    """Store a certificate and its private key, or show the violations at their fields."""
    form = request[FORM]
    body = {name: form.get(name, "") for name in ("certificate", "key")}
    if password := form.get("password", ""):
        body["password"] = password
    answer = await call(request, "PUT", API, body)
    if not answer.is_success:
        return await show_certificate(request, answer)
    return redirect(f"{PLACE}?notice=certificate_stored")


@page("POST", f"{PLACE}/remove", return_to=PLACE)
async def remove_certificate(request: web.Request) -> web.Response:
    """Remove the certificate and its private key."""
    answer = await call(request, "DELETE", API)
    if not answer.is_success:
        return await show_certificate(request, answer)
    return redirect(f"{PLACE}?notice=certificate_removed")
