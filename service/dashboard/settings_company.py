"""Settings of a company: profile, numbering, default tax, and who did what."""

from aiohttp import web

from service.dashboard.documents import CONSOLIDATED, INVOICES, NOTES, read_next_code
from service.dashboard.operations import Answer, read_company, read_tagged
from service.dashboard.pages import TEXTS, page, redirect
from service.dashboard.repetition import call_once
from service.dashboard.sessions import ADMINISTER
from service.dashboard.settings import NO_REFUSAL, Action, FormRefusal, declare
from service.db.statements import sql
from service.documents import codes
from service.http.access import read_own
from service.http.forms import FORM, FormFields, read_decimal, read_number
from service.json_types import JsonMapping, JsonObject

COMPANY = "/api/companies"
#: Members of the company that the profile shows.
PROFILE = tuple(TEXTS["settings"]["profile"]["fields"])
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
DIGITS, AUTO_SUBMIT = "PREFIX_DIGIT_COUNT", "AUTO_SUBMIT_INVOICE"
TAXES, TAX = "default_tax_types_and_rates", ("tax_type", "tax_rate")
MOST_ENTRIES = 100  # of the audit log on a page


async def _go_to_profile(_: web.Request) -> web.Response:
    return redirect("/settings/profile")


async def _read_profile(request: web.Request) -> JsonMapping:
    """Return the profile, or the entries of the form, and what is missing to be ready."""
    sent = request.get(FORM)
    stored, etag = await read_tagged(request, COMPANY)
    company = stored["data"]
    readiness = [] if sent else company["readiness"]
    return {
        "values": _read_entries(sent) if sent else company,
        "readiness": readiness,
        "missing": {each["path"].strip("/"): each["message"] for each in readiness},
        "optional": OPTIONAL,
        "tables": codes.get_all_names(),
        "etag": etag,
    }


def _read_entries(form: FormFields) -> dict[str, str]:
    return {name: form.get(name, "").strip() for name in PROFILE}


async def _save_profile(request: web.Request) -> Answer:
    stored = await read_company(request)
    body: JsonObject = {
        name: text or (None if name in NULLABLE else "")
        for name, text in _read_entries(request[FORM]).items()
        if (text or None) != (stored[name] or None)
    }
    return await call_once(request, "PUT", COMPANY, body)


async def _read_numbers(request: web.Request) -> JsonMapping:
    """Return prefixes, digits and the default tax, with a preview of the numbers."""
    stored, etag = await read_tagged(request, COMPANY)
    company = _read_numbering(request, stored["data"])
    setting, taxes = company["setting"], company[TAXES]
    following = {each: await read_next_code(request, *each) for each in {*PREFIXES.values()}}
    digits = setting[DIGITS]
    width = digits if isinstance(digits, int) and digits <= 12 else 0
    return {
        "setting": setting,
        "previews": {
            name: f"{setting[name]}{str(following[sequence]).zfill(width)}"
            for name, sequence in PREFIXES.items()
        },
        "tax": taxes[0] if taxes else {},
        "tax_types": codes.get_all_names()["tax_types"],
        "etag": etag,
    }


def _read_numbering(request: web.Request, company: JsonMapping) -> JsonMapping:
    """Return the members of the company that the page shows, or those of the form."""
    if (form := request.get(FORM)) is None:
        return company
    setting: JsonObject = {name: form.get(name, "") for name in PREFIXES}
    setting[DIGITS] = read_decimal(form.get(DIGITS, "").strip())  # The API reports a text.
    setting[AUTO_SUBMIT] = AUTO_SUBMIT in form
    kind, rate = (form.get(name, "").strip() for name in TAX)
    first = [{"tax_type": kind, "tax_rate": read_decimal(rate)}] if kind or rate else []
    return {"setting": setting, TAXES: [*first, *company[TAXES][1:]]}  # It has only the first.


async def _save_numbers(request: web.Request) -> Answer | FormRefusal:
    if request[FORM].get("do") == "preview":
        return NO_REFUSAL
    body = _read_numbering(request, await read_company(request))
    return await call_once(request, "PUT", COMPANY, body)


async def _read_activity(request: web.Request) -> JsonMapping:
    """Return the audit log, the latest first."""
    before = read_number(request.query.get("before", ""), 17)
    rows = await read_own(request, sql.activity_page, before=before, most=MOST_ENTRIES)
    return {"rows": rows, "older": rows[-1]["id"] if len(rows) == MOST_ENTRIES else None}


page("GET", "/settings", right=ADMINISTER)(_go_to_profile)
declare(
    "/settings/profile",
    "settings_profile.html",
    _read_profile,
    Action("", _save_profile, "saved", needs_password=False),
)
declare(
    "/settings/numbers",
    "settings_numbers.html",
    _read_numbers,
    Action("", _save_numbers, "saved", needs_password=False),
)
declare("/settings/activity", "settings_activity.html", _read_activity)
