"""Settings of a company: profile, numbering, default tax, and who did what."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from service.dashboard import pages
from service.dashboard.documents import CONSOLIDATED, INVOICES, NOTES, read_next_code
from service.dashboard.numbers import read_decimal, read_number
from service.dashboard.operations import Failed, call, read
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import ADMINISTER
from service.db.statements import sql
from service.documents import codes
from service.http import app_keys
from service.http.forms import FORM, FormFields

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

COMPANY = "/api/companies"
#: Members of the company that the profile shows, with their tables of codes.
PROFILE = (
    "name",
    "tin_code",
    "registration_type",
    "registration_number",
    "sst_registration_number",
    "tourism_tax_registration_number",
    "msic_code",
    "business_activity_description",
    "address",
    "zip_code",
    "city",
    "state",
    "country",
    "phone",
    "email",
)
#: Members that a document does not need.
OPTIONAL = {"sst_registration_number", "tourism_tax_registration_number", "zip_code", "email"}
#: Members that may be null.
NULLABLE = {"sst_registration_number", "tourism_tax_registration_number"}
#: Prefix -> the documents that share a sequence of codes: their kind, and their type if that
#: matters.
PREFIXES = {
    "INVOICE_PREFIX": (INVOICES, ""),
    "SELF_BILLED_INVOICE_PREFIX": (INVOICES, ""),
    "CONSOLIDATE_INVOICE_PREFIX": (CONSOLIDATED, ""),
    "CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX": (CONSOLIDATED, ""),
    "CREDIT_NOTE_PREFIX": (NOTES, "CREDIT_NOTE"),
    "DEBIT_NOTE_PREFIX": (NOTES, "DEBIT_NOTE"),
    "REFUND_NOTE_PREFIX": (NOTES, "REFUND_NOTE"),
}
TAXES = "default_tax_types_and_rates"
MOST_ENTRIES = 100  # of the audit log on a page
NOTHING_WRONG: Mapping[str, str] = {}


@page("GET", "/settings")
async def show_settings(request: web.Request) -> web.Response:
    """Go to the first page of the settings."""
    return redirect("/settings/profile")


@page("GET", "/settings/profile")
async def show_profile(request: web.Request) -> web.Response:
    """Return the form of the company's profile, with what is missing to be ready."""
    company = (await read(request, COMPANY))["data"]
    missing = {each["path"].strip("/"): each["message"] for each in company["readiness"]}
    return _render_profile(request, company, company["readiness"], missing)


@page("POST", "/settings/profile")
async def save_profile(request: web.Request) -> web.Response:
    """Store the profile, or show the violations at their fields."""
    form = request[FORM]
    sent = {name: form.get(name, "").strip() for name in PROFILE}
    stored = (await read(request, COMPANY))["data"]
    body: dict[str, Any] = {
        name: text or (None if name in NULLABLE else "")
        for name, text in sent.items()
        if (text or None) != (stored[name] or None)
    }
    answer = await call(request, "PUT", COMPANY, body)
    if answer.is_success:
        return redirect("/settings/profile?notice=saved")
    if answer.status not in (409, 422):
        raise Failed(answer)
    wrong = {path.strip("/"): message for path, message in answer.violations.items()}
    return _render_profile(request, sent, [], wrong or {"": answer.message}, status=answer.status)


def _render_profile(
    request: web.Request,
    values: Mapping[str, Any],
    readiness: list[Any],
    wrong: Mapping[str, str],
    status: int = 200,
) -> web.Response:
    return render(
        request,
        "settings_profile.html",
        status,
        values=values,
        readiness=readiness,
        wrong=wrong,
        optional=OPTIONAL,
        tables=codes.get_all_names(),
    )


@page("GET", "/settings/numbers")
async def show_numbers(request: web.Request) -> web.Response:
    """Return the form of prefixes, digits and the default tax, with a preview of the numbers."""
    company = (await read(request, COMPANY))["data"]
    return await _render_numbers(request, company["setting"], company[TAXES])


@page("POST", "/settings/numbers")
async def save_numbers(request: web.Request) -> web.Response:
    """Store prefixes, digits, automatic submission and the default tax."""
    form = request[FORM]
    setting: dict[str, Any] = {name: form.get(name, "") for name in PREFIXES}
    setting["PREFIX_DIGIT_COUNT"] = _read_digits(form.get("PREFIX_DIGIT_COUNT", "").strip())
    setting["AUTO_SUBMIT_INVOICE"] = "AUTO_SUBMIT_INVOICE" in form
    stored = (await read(request, COMPANY))["data"][TAXES]
    taxes = [*_read_tax(form), *stored[1:]]  # The form has only the first one.
    if form.get("do") == "preview":
        return await _render_numbers(request, setting, taxes)
    answer = await call(request, "PUT", COMPANY, {"setting": setting, TAXES: taxes})
    if answer.is_success:
        return redirect("/settings/numbers?notice=saved")
    if answer.status != 422:
        raise Failed(answer)
    wrong = {path.rpartition("/")[2]: message for path, message in answer.violations.items()}
    return await _render_numbers(request, setting, taxes, wrong)


def _read_digits(text: str) -> int | str:
    """Return a number of digits, or the text as it is, so that the API reports it."""
    number = read_number(text, 3)
    return text if number is None else number


def _read_tax(form: FormFields) -> list[dict[str, Any]]:
    """Return the default tax of the form as a list, which is empty if there is none."""
    kind, rate = (form.get(name, "").strip() for name in ("tax_type", "tax_rate"))
    if not kind and not rate:
        return []
    return [{"tax_type": kind, "tax_rate": read_decimal(rate)}]


async def _render_numbers(
    request: web.Request,
    setting: Mapping[str, Any],
    taxes: Sequence[Mapping[str, Any]],
    wrong: Mapping[str, str] = NOTHING_WRONG,
) -> web.Response:
    sequences = list(dict.fromkeys(PREFIXES.values()))
    codes_of = [await read_next_code(request, *sequence) for sequence in sequences]
    following = dict(zip(sequences, codes_of, strict=True))
    digits = setting["PREFIX_DIGIT_COUNT"]
    width = digits if isinstance(digits, int) and digits <= 12 else 0
    previews = {
        name: f"{setting[name]}{str(following[sequence]).zfill(width)}"
        for name, sequence in PREFIXES.items()
    }
    return render(
        request,
        "settings_numbers.html",
        422 if wrong else 200,
        setting=setting,
        prefixes=PREFIXES,
        previews=previews,
        tax=taxes[0] if taxes else {},
        tax_types=codes.get_all_names()["tax_types"],
        wrong=wrong,
    )


@page("GET", "/settings/activity")
async def show_activity(request: web.Request) -> web.Response:
    """Return the audit log in words, the latest first."""
    company, before = request[app_keys.COMPANY], read_number(request.query.get("before", ""), 17)
    rows = await request.app[app_keys.READS].read(
        sql.activity_page, company_id=company, before=before, most=MOST_ENTRIES
    )
    older = rows[-1]["id"] if len(rows) == MOST_ENTRIES else None
    return render(request, "settings_activity.html", rows=rows, older=older)
