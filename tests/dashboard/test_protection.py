"""Every page needs a session, every form its token, and no page shows another company's records.

The pages are those of the table of routes, so that a new page is tested without a change here.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping

import asyncpg
from markupsafe import escape

from service.config import read_config
from service.dashboard.sessions import ADMINISTER, PERSON, READ, WRITE
from service.dashboard.table import make_page_routes, pages
from tests.api_invoices import create_delivery, create_invoice, create_one_of_each
from tests.api_requests import create_record, expect, request_json
from tests.conftest import Client, StartService, make_company
from tests.fixtures_dashboard import SignIn
from tests.harness.bodies import buyer, line
from tests.harness.environments import GENEROUS
from tests.harness.visitors import Visitor, make_person

UNKNOWN = 999_999_999
SCRIPT = "<script>document.title='broken'</script>"
TOKEN, KEY_ID = "x" * 43, "x" * 12
#: Pages for people without a session.
PUBLIC = ("/sign-in", "/link/", "/shared/", "/receipt/", "/assets/")
#: First part of the path of a page -> the operations of its records.
PLACES = {
    "/invoices": "/api/invoices",
    "/notes": "/api/adjustment-notes",
    "/consolidated": "/api/consolidated-invoices",
    "/requests": "/api/einvoice-requests",
    "/settings/webhooks": "/api/webhooks",
}
#: Forms of the settings that need no recent password. They give no access, and send nothing to
#: another address. A revoked key must stop at once.
NO_PASSWORD = {
    "/settings/profile",
    "/settings/numbers",
    "/settings/portal",
    "/settings/keys/{id}/revoke",
    "/settings/webhooks/{id}/deliveries/{delivery_id}/redeliver",
}
#: Starts of the paths of pages of a person.
OF_PERSON = ("/sign-out", "/password", "/confirm", "/companies", "/account")
#: Role -> the rights that it has.
MAY = {
    "reader": {PERSON, READ},
    "member": {PERSON, READ, WRITE},
    "admin": {PERSON, READ, WRITE, ADMINISTER},
    "owner": {PERSON, READ, WRITE, ADMINISTER},
}
NO_RIGHT = "Your role does not allow this."
#: A part of a path: its name, and what it may be.
_PART = re.compile(r"\{(\w+)(?::((?:[^{}]|\{[^{}]*\})*))?\}")
_CHOICES = re.compile(r"[a-z]+(\|[a-z]+)+")


def list_paths(method: str) -> list[str]:
    """Return the paths of all pages, as the table of routes has them."""
    return [route.path for route in make_page_routes() if route.method == method]


def fill(path: str, ids: Mapping[str, object]) -> Iterator[str]:
    """Yield a path with the ids of its parts, once for each choice that it has."""
    choices = [part[1] for part in _PART.findall(path) if _CHOICES.fullmatch(part[1])]
    for choice in choices[0].split("|") if choices else [""]:
        yield _PART.sub(
            lambda part, choice=choice: _fill_part(part[1], part[2] or "", choice, ids), path
        )


def _fill_part(name: str, form: str, choice: str, ids: Mapping[str, object]) -> str:
    if _CHOICES.fullmatch(form):
        return choice
    return KEY_ID if "A-Z" in form else str(ids.get(name, TOKEN))


def is_public(path: str) -> bool:
    return path.startswith(PUBLIC)


async def test_every_page_needs_a_session(site: Client) -> None:
    async with Visitor(site.make_url("/")) as visitor:
        for route in list_paths("GET"):
            for path in fill(route, {"id": 1}):
                await visitor.get(path)
                assert is_public(path) or (path, visitor.path) == (path, "/sign-in")
        for route in list_paths("POST"):
            for path in fill(route, {"id": 1, "link_id": 1, "delivery_id": 1}):
                await visitor.post(path)
                is_asked = visitor.status == 401 or visitor.path == "/sign-in"
                assert is_public(path) or (path, is_asked) == (path, True)


async def test_every_form_needs_its_token(admin: Visitor, site: Client) -> None:
    routes = list_paths("POST")
    assert len(routes) > 40
    async with Visitor(site.make_url("/")) as stranger:
        for route in routes:
            for path in fill(route, {"id": 1, "link_id": 1, "delivery_id": 1}):
                visitor = stranger if is_public(path) else admin
                await visitor.get("/sign-in" if visitor is stranger else "/settings/portal")
                for token in ("", "wrong"):
                    await visitor.post(path, {"url": "https://example.com"}, token=token)
                    assert (path, visitor.status) == (path, 403)
                    assert "did not come from this site" in visitor.text


def test_every_form_of_the_settings_needs_a_recent_password() -> None:
    without = {
        _PART.sub(r"{\1}", page.path)
        for page in pages.PAGES
        if page.method == "POST" and page.right == ADMINISTER and page.return_to is None
    }
    assert without == NO_PASSWORD


def find_right(method: str, path: str) -> str:
    """Return the right that a page must need, by its path alone."""
    if path.startswith(OF_PERSON):
        return PERSON
    if path.startswith("/settings"):
        return ADMINISTER
    return WRITE if method == "POST" or path.endswith(("/new", "/edit", "/note", "/plan")) else READ


async def test_every_page_and_form_needs_the_right_of_its_path(
    site: Client, sign_in: SignIn
) -> None:
    """The forms lack their token, so that none has an effect."""
    tried = 0
    for role, rights in MAY.items():
        visitor = await sign_in(site, role)
        for method in ("GET", "POST"):
            for route in list_paths(method):
                for path in fill(route, {"id": UNKNOWN, "link_id": 1, "delivery_id": 1}):
                    if is_public(path):
                        continue
                    await (visitor.get(path) if method == "GET" else visitor.post(path, token=""))
                    is_refused = visitor.status == 403 and NO_RIGHT in visitor.words
                    may = find_right(method, path) in rights
                    assert (role, method, path, is_refused) == (role, method, path, not may)
                    tried += 1
    assert tried > 300


async def test_every_form_on_a_page_has_a_token(admin: Visitor, site: Client) -> None:
    ids = await create_ids(site)
    found = 0
    for route in list_paths("GET"):
        for path in fill(route, ids_of(route, ids)):
            if not is_public(path):
                await admin.get(path)
                forms = re.findall(r'<form[^>]*method="post".*?</form>', admin.text, re.DOTALL)
                assert all(
                    'name="form_token"' in form and 'name="form_key"' in form for form in forms
                ), path
                found += len(forms)
    assert found > 50


async def create_ids(api: Client) -> dict[str, int]:
    """Create a record of every resource and return {place: id}, also of a link and a delivery."""
    ids = await create_one_of_each(api)
    await create_record(api, f"/api/invoices/{ids['/api/invoices']}/links", purpose="view")
    _, links = await request_json(api, "GET", f"/api/invoices/{ids['/api/invoices']}/links")
    delivery = await create_delivery(api, ids["/api/webhooks"])
    return {**ids, "link_id": links[0]["id"], "delivery_id": delivery}


def ids_of(route: str, ids: Mapping[str, int]) -> dict[str, int]:
    """Return the values of a route's parts."""
    place = next((PLACES[start] for start in PLACES if route.startswith(f"{start}/{{")), "")
    return {**ids, "id": ids.get(place, UNKNOWN)}


async def test_pages_of_another_company_answer_like_unknown_ones(
    admin: Visitor, site: Client, start: StartService, environment: dict[str, str]
) -> None:
    other = await make_company(environment)
    theirs_api = await start(other, **GENEROUS)
    own, theirs = await create_ids(site), await create_ids(theirs_api)
    unknown = dict.fromkeys(theirs, UNKNOWN)
    before = await read_records(theirs_api, theirs)
    mixed = {**own, **{name: theirs[name] for name in ("link_id", "delivery_id")}}
    mixed_unknown = {**own, "link_id": UNKNOWN, "delivery_id": UNKNOWN}
    tried = 0
    for method in ("GET", "POST"):
        for route in list_paths(method):
            if not route.startswith(tuple(f"{start}/{{" for start in PLACES)):
                continue
            pairs = [(theirs, unknown)]
            if "link_id" in route or "delivery_id" in route:
                pairs.append((mixed, mixed_unknown))
            for ids, others in pairs:
                for path, absent in zip(
                    fill(route, ids_of(route, ids)), fill(route, ids_of(route, others)), strict=True
                ):
                    answers = [await ask(admin, method, each) for each in (path, absent)]
                    assert answers[0] == answers[1], path
                    assert answers[0][0] == 404, path
                    tried += 1
    assert tried > 50
    assert await read_records(theirs_api, theirs) == before


async def ask(visitor: Visitor, method: str, path: str) -> tuple[int, str]:
    """Return status and words of a page, without its own path."""
    if method == "GET":
        await visitor.get(path)
    else:
        await visitor.fill_in(
            "/companies",
            {"reason": "x", "purpose": "view", "url": "https://example.com"},
            path=path,
        )
    return visitor.status, re.sub(r"Request \w+", "", visitor.words).replace(path, "")


async def read_records(api: Client, ids: Mapping[str, int]) -> list[object]:
    """Return the records of a company, with the links of its invoice."""
    paths = [f"{place}/{ids[place]}" for place in PLACES.values()]
    paths.append(f"/api/invoices/{ids['/api/invoices']}/links")
    return [(await request_json(api, "GET", path))[1] for path in paths]


async def test_people_and_keys_of_another_company_stay(
    admin: Visitor, site: Client, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    other = await make_company(environment)
    await make_person(read_config(environment), other.id, "siti@example.com", "owner")
    user_id = await owner.fetchval("select id from users where email = 'siti@example.com'")
    for action in ("link", "remove"):
        answers = [
            await ask(admin, "POST", f"/settings/people/{each}/{action}")
            for each in (user_id, UNKNOWN)
        ]
        assert answers[0] == answers[1] and answers[0][0] == 404
    answers = [
        await ask(admin, "POST", f"/settings/keys/{each}/revoke")
        for each in (other.key_id, "0" * len(other.key_id))
    ]
    assert answers[0] == answers[1] and answers[0][0] == 404
    await expect(site, 200, "GET", "/api/companies", headers={"X-API-Key": other.key})
    members = "select count(*) from company_members where user_id = $1"
    assert await owner.fetchval(members, user_id) == 1


async def test_activity_and_portal_show_nothing_of_another_company(
    admin: Visitor, start: StartService, environment: dict[str, str]
) -> None:
    theirs = await start(await make_company(environment), **GENEROUS)
    body = {"city": "Kota Rahsia", "email": "rahsia@example.com"}
    await expect(theirs, 200, "PUT", "/api/companies", json=body)
    for path in ("/settings/activity", "/settings/portal", "/settings/profile", "/"):
        await admin.get(path)
        assert admin.status == 200 and "ahsia" not in admin.text


async def test_script_in_any_text_stays_text_on_every_page(admin: Visitor, site: Client) -> None:
    ids = await create_ids(site)
    short = SCRIPT[:10]
    address = dict.fromkeys(("line1", "line2", "line3"), SCRIPT) | {"city": short}
    named = buyer(
        name=SCRIPT,
        contactNumber=short,
        email=f"{short}@example.com",
        tin=short,
        registration={"type": "BRN", "number": short},
        address={**address, "zipCode": short, "country": "MYS"},
    )
    wording = {"description": SCRIPT, "taxExemptionReason": SCRIPT}
    reduced = line(**wording, discount={"amount": 1, "reason": SCRIPT})
    invoice_id = await create_invoice(site, buyer=named, lineItems=[reduced])
    for method, path, body in (
        ("PUT", "/api/companies", {"name": SCRIPT, "city": SCRIPT, "address": SCRIPT}),
        ("PUT", f"/api/webhooks/{ids['/api/webhooks']}", {"description": SCRIPT}),
        ("POST", "/api/einvoice-requests", {"invoiceCode": SCRIPT, **named}),
    ):
        status, answer = await request_json(site, method, path, json=body)
        assert status in (200, 201), answer
    for path, fields in (
        ("/settings/keys", {"name": SCRIPT}),
        ("/settings/people", {"name": SCRIPT, "email": "x@example.com", "role": "reader"}),
        ("/settings/people", {"name": SCRIPT, "email": SCRIPT, "role": SCRIPT}),
        ("/settings/portal/credentials", {"client_id": SCRIPT, "client_secret": SCRIPT}),
        ("/settings/webhooks", {"url": SCRIPT, "types": SCRIPT}),
        ("/settings/numbers", {"INVOICE_PREFIX": SCRIPT, "tax_type": SCRIPT, "tax_rate": SCRIPT}),
        ("/settings/profile", {"state": SCRIPT, "msic_code": SCRIPT}),
        ("/settings/certificate", {"certificate": SCRIPT, "key": SCRIPT}),
        ("/consolidated/plan", {"month": SCRIPT, "type": SCRIPT, "code": SCRIPT}),
        (f"/invoices/{ids['/api/invoices']}/cancel", {"reason": SCRIPT}),
        (f"/invoices/{ids['/api/invoices']}/links", {"purpose": SCRIPT}),
        ("/requests/1/approve?status=Pending&page=1", {"x": SCRIPT}),
    ):
        await admin.fill_in("/settings/keys", fields, path=path)
        assert admin.status < 500 and SCRIPT not in admin.text, path
    shown = 0
    query = "?query=%3Cscript%3E&status=%3Cscript%3E&month=%3Cscript%3E&before=%3Cscript%3E"
    for route in list_paths("GET"):
        for values in (ids_of(route, ids), {**ids, "id": invoice_id}):
            for path in fill(route, values):
                for address in (path, path + query):
                    await admin.get(address)
                    assert admin.status < 500, address
                    assert not admin.is_page or short not in admin.text, address
                    shown += escape(SCRIPT) in admin.text
    assert shown > 20


async def test_a_removed_person_loses_every_page_in_every_process_within_a_second(
    site: Client, sign_in: SignIn, start: StartService, owner: asyncpg.Connection
) -> None:
    admin = await sign_in(site, "admin")
    other = await start(**GENEROUS)
    await admin.get("/settings/portal")
    async with asyncio.timeout(30), Visitor(other.make_url("/")) as elsewhere:
        elsewhere._session.cookie_jar.update_cookies(admin.cookies, other.make_url("/"))
        await elsewhere.get("/settings/portal")
        assert elsewhere.path == "/settings/portal"
        user_id = await owner.fetchval("select id from users where email = 'admin@example.com'")
        remover = await sign_in(site, "owner")
        await remover.fill_in("/settings/people", path=f"/settings/people/{user_id}/remove")
        for visitor in (admin, elsewhere):
            for path in ("/settings/portal", "/settings/activity", "/settings/webhooks", "/"):
                await visitor.get(path)
                assert visitor.path == "/sign-in"
