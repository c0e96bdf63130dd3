"""Settings of a company: profile, numbering, API keys, people, and who did what."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aiohttp import web

from service.dashboard import pages, people
from service.dashboard.links import PASSWORD, make_link
from service.dashboard.operations import Failed, call, read
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import ADMINISTER, OWN, RIGHTS, SESSION
from service.db.statements import sql
from service.documents import codes
from service.errors import Conflict, Forbidden, NotFound
from service.http import api_keys, app_keys

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

COMPANY = "/api/companies"
TEXTS = pages.TEXTS["settings"]
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
#: Members that may be null.
NULLABLE = {"sst_registration_number", "tourism_tax_registration_number"}
PREFIXES = (
    "INVOICE_PREFIX",
    "SELF_BILLED_INVOICE_PREFIX",
    "CONSOLIDATE_INVOICE_PREFIX",
    "CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX",
    "CREDIT_NOTE_PREFIX",
    "DEBIT_NOTE_PREFIX",
    "REFUND_NOTE_PREFIX",
)
KEY_NAME_CHARACTERS = 100
MOST_ENTRIES = 100  # of the audit log on a page


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
    form = await request.post()
    sent = {name: str(form.get(name, "")).strip() for name in PROFILE}
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
        tables=codes.TABLES,
    )


@page("GET", "/settings/numbers")
async def show_numbers(request: web.Request) -> web.Response:
    """Return the form of prefixes and digits, with a preview of the next number."""
    company = (await read(request, COMPANY))["data"]
    return await _render_numbers(request, company["setting"], {})


@page("POST", "/settings/numbers")
async def save_numbers(request: web.Request) -> web.Response:
    """Store prefixes, digits and automatic submission."""
    form = await request.post()
    digits = str(form.get("PREFIX_DIGIT_COUNT", "")).strip()
    setting: dict[str, Any] = {name: str(form.get(name, "")) for name in PREFIXES}
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 4
    setting["PREFIX_DIGIT_COUNT"] = int(digits) if is_number else digits
    setting["AUTO_SUBMIT_INVOICE"] = "AUTO_SUBMIT_INVOICE" in form
    if form.get("do") == "preview":
        return await _render_numbers(request, setting, {})
    answer = await call(request, "PUT", COMPANY, {"setting": setting})
    if answer.is_success:
        return redirect("/settings/numbers?notice=saved")
    if answer.status != 422:
        raise Failed(answer)
    wrong = {path.rpartition("/")[2]: message for path, message in answer.violations.items()}
    return await _render_numbers(request, setting, wrong, 422)


async def _render_numbers(
    request: web.Request, setting: Mapping[str, Any], wrong: Mapping[str, str], status: int = 200
) -> web.Response:
    latest = await read(request, "/api/invoices", {"per_page": 1})
    following = int(latest["data"][0]["invoice_code"]) + 1 if latest["data"] else 1
    digits = setting["PREFIX_DIGIT_COUNT"]
    width = digits if isinstance(digits, int) and digits <= 12 else 0
    previews = {name: f"{setting[name]}{str(following).zfill(width)}" for name in PREFIXES}
    return render(
        request,
        "settings_numbers.html",
        status,
        setting=setting,
        prefixes=PREFIXES,
        previews=previews,
        wrong=wrong,
    )


@page("GET", "/settings/keys")
async def show_keys(
    request: web.Request, created: str | None = None, wrong: str | None = None
) -> web.Response:
    """Return the API keys. `created` is the text of a new key, which is shown once."""
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        keys = await sql.api_key_list(conn, company_id=company)
    return render(
        request,
        "settings_keys.html",
        422 if wrong else 200,
        keys=keys,
        created=created,
        wrong=wrong,
        now=datetime.now(UTC),
    )


@page("POST", "/settings/keys")
async def create_key(request: web.Request) -> web.Response:
    """Create a key and show it once. The password must have been entered a short time ago."""
    if not request[SESSION].is_recent:
        return redirect("/confirm?next=/settings/keys")
    form, company = await request.post(), request[app_keys.COMPANY]
    name = str(form.get("name", "")).strip()[:KEY_NAME_CHARACTERS]
    expires = str(form.get("expires", "")).strip()
    zone = request.app[app_keys.CONFIG].time_zone
    expires_at = None
    try:
        if expires:
            expires_at = datetime.fromisoformat(expires).replace(tzinfo=zone)
    except ValueError:
        return await show_keys(request, wrong=TEXTS["api_keys"]["no_day"])
    if not name:
        return await show_keys(request, wrong=TEXTS["api_keys"]["no_name"])
    if expires_at and expires_at <= datetime.now(UTC):
        return await show_keys(request, wrong=TEXTS["api_keys"]["past"])
    is_live = bool(request.app[app_keys.CONFIG].portal_client_id) and not _is_sandbox(request)
    key = api_keys.new_key(is_live)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        await sql.api_key_insert(
            conn,
            company_id=company,
            key_id=key.key_id,
            name=name,
            secret_sha256=key.digest,
            expires_at=expires_at,
        )
    return await show_keys(request, created=key.text)


def _is_sandbox(request: web.Request) -> bool:
    """Return whether the portal is the sandbox of this service."""
    return "127.0.0.1" in request.app[app_keys.CONFIG].portal_api_base


@page("POST", "/settings/keys/{id:[0-9A-Za-z]{12}}/revoke")
async def revoke_key(request: web.Request) -> web.Response:
    """Revoke a key. It stops working in every process within a second."""
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        await sql.api_key_revoke(conn, company_id=company, key_id=request.match_info["id"])
    return redirect("/settings/keys?notice=revoked")


@page("GET", "/settings/people")
async def show_people(
    request: web.Request, link: str | None = None, wrong: str | None = None
) -> web.Response:
    """Return the people of the company. `link` is a new one-time link, which is shown once."""
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        members = await sql.member_list(conn, company_id=company)
    return render(
        request,
        "settings_people.html",
        422 if wrong else 200,
        members=members,
        link=link,
        wrong=wrong,
        choices=[role for role in RIGHTS if _may_give(request, role)],
        may_change=partial(_may_give, request),
    )


def _may_give(request: web.Request, role: str) -> bool:
    """Return whether the person may give or take a role: only owners those that administer."""
    return request[SESSION].may(OWN) or ADMINISTER not in RIGHTS[role]


@page("POST", "/settings/people")
async def invite(request: web.Request) -> web.Response:
    """Invite a person, or change a role, and show the one-time link of a person without one."""
    form, company = await request.post(), request[app_keys.COMPANY]
    email, name = (str(form.get(field, "")).strip() for field in ("email", "name"))
    role = str(form.get("role", ""))
    if not people.is_email(email) or not name or role not in RIGHTS:
        return await show_people(request, wrong=TEXTS["people"]["incomplete"])
    await _check_change(request, email, role)
    database = request.app[app_keys.DATABASE]
    invited = await people.invite(database, company, email=email, name=name[:200], role=role)
    if not invited.needs_link:
        return redirect("/settings/people?notice=role_given")
    base = request.app[app_keys.CONFIG].public_url
    return await show_people(
        request, link=await make_link(database, base, invited.user_id, PASSWORD)
    )


async def _check_change(request: web.Request, email: str, role: str | None) -> None:
    """Raise Forbidden if the person may not change a role, Conflict for the last owner.

    `role` is the new role of the person with the e-mail address, None to remove the person.
    """
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        members = await sql.member_list(conn, company_id=company)
    former = next((each["role"] for each in members if each["email"] == email), None)
    for changed in (former, role):
        if changed is not None and not _may_give(request, changed):
            raise Forbidden(pages.TEXTS["errors"]["no_right"])
    owners = [each["email"] for each in members if each["role"] == "owner"]
    if owners == [email] and role != "owner":
        raise Conflict(TEXTS["people"]["last_owner"])


@page("POST", "/settings/people/{id:[0-9]+}/{action:link|remove}")
async def change_member(request: web.Request) -> web.Response:
    """Make a new one-time link for a person, or remove the person from the company."""
    company, user_id = request[app_keys.COMPANY], int(request.match_info["id"])
    database = request.app[app_keys.DATABASE]
    async with database.reading(company) as conn:
        members = await sql.member_list(conn, company_id=company)
    member = next((each for each in members if each["user_id"] == user_id), None)
    if member is None:
        raise NotFound(TEXTS["people"]["unknown"])
    is_link = request.match_info["action"] == "link"
    await _check_change(request, member["email"], member["role"] if is_link else None)
    if is_link:
        if not await people.belongs_only_to(database, user_id, company):
            raise Conflict(TEXTS["people"]["elsewhere"])
        base = request.app[app_keys.CONFIG].public_url
        return await show_people(request, link=await make_link(database, base, user_id, PASSWORD))
    async with database.company(company) as conn:
        await sql.member_delete(conn, company_id=company, user_id=user_id)
    return redirect("/settings/people?notice=removed")


@page("GET", "/settings/activity")
async def show_activity(request: web.Request) -> web.Response:
    """Return the audit log in words, the latest first."""
    company, text = request[app_keys.COMPANY], request.query.get("before", "")
    before = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        rows = await sql.activity_page(conn, company_id=company, before=before, most=MOST_ENTRIES)
    older = rows[-1]["id"] if len(rows) == MOST_ENTRIES else None
    return render(request, "settings_activity.html", rows=rows, older=older)
