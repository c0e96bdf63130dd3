"""Forms that are sent twice: by a second click, a reload, or Back and the same button."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.api_invoices import create_invoice, create_sale, create_valid_invoice
from tests.api_reads import get_invoice
from tests.api_requests import request_json
from tests.conftest import Client, Company, StartService
from tests.dashboard.test_invoice_form import FormReader
from tests.fixtures_dashboard import SignIn
from tests.fixtures_webhooks import LOCAL, create_endpoint
from tests.harness.bodies import BUYER_FORM, last_month
from tests.harness.visitors import Visitor

INVOICE = {
    "/type": "INVOICE",
    "/code": "77",
    "/issueDateTime": "2026-11-20T10:00",
    "/currencyCode": "MYR",
    "/buyer/name": "Aminah binti Salleh",
    "/lineItems/0/description": "Coffee",
    "/lineItems/0/classifications/0": "022",
    "/lineItems/0/unit/price": "48.5",
    "/lineItems/0/unit/count": "2",
    "/lineItems/0/unit/code": "KGM",
    "do": "save",
}
_KEY = re.compile(r'name="form_key" value="([^"]*)"')
_SECRET = re.compile(r'id="new-(?:key|link|secret|url)">([^<]+)<')


@pytest.fixture
async def site(start: StartService) -> Client:
    """A client of a service with background work, which delivers to loopback."""
    return await start(**LOCAL, CONSOLIDATION_DAYS="366")


@dataclass(frozen=True)
class Form:
    """A form: its page, the path that it is sent to, its fields, and what counts its effects."""

    page: str
    path: str
    fields: Mapping[str, str]
    count: str
    shows_secret: bool = False


async def make_form(site: Client, name: str) -> Form:
    """Return one of the forms that create, with the records that it needs."""
    match name:
        case "invoice":
            return Form(
                "/invoices/new", "/invoices/new", INVOICE, "from documents where kind = 'invoice'"
            )
        case "note":
            place = f"/invoices/{await create_valid_invoice(site)}/note"
            lines = {name: text for name, text in INVOICE.items() if name.startswith("/lineItems")}
            fields = {"/type": "CREDIT_NOTE", "/adjustmentNoteCode": "7", **lines, "do": "save"}
            fields |= {"/adjustmentNoteIssueDate": "2026-11-20T10:00"}
            return Form(place, place, fields, "from documents where kind = 'adjustment_note'")
        case "consolidated":
            await create_sale(site)
            page = f"/consolidated/plan?month={last_month()[:7]}"
            fields = {"month": last_month()[:7], "type": "CONSOLIDATED_INVOICE", "code": "1"}
            return Form(
                page,
                "/consolidated/plan",
                fields,
                "from documents where kind = 'consolidated_invoice'",
            )
        case "link":
            place = f"/invoices/{await create_invoice(site)}"
            return Form(place, f"{place}/links", {"purpose": "view"}, "from document_links", True)
        case "key":
            place = "/settings/keys"
            return Form(place, place, {"name": "Shop"}, "from api_keys where name = 'Shop'", True)
        case "webhook":
            place, fields = "/settings/webhooks", {"url": "https://hooks.example.com/in"}
            return Form(place, place, fields, "from webhook_endpoints", True)
        case "secret":
            place = f"/settings/webhooks/{(await create_endpoint(site, 'https://a.example'))[0]}"
            return Form(place, f"{place}/rotate", {}, "from webhook_secrets", True)
        case _:
            place = "/settings/people"
            fields = {"email": "siti@example.com", "name": "Siti", "role": "member"}
            links = "from user_links l join users u on u.id = l.user_id and u.name = 'Siti'"
            return Form(place, place, fields, links, True)


FORMS = ("invoice", "note", "consolidated", "link", "key", "webhook", "secret", "invitation")
EFFECTS = {"secret": 2}  # of which one is the first secret


async def open_form(visitor: Visitor, form: Form) -> dict[str, str]:
    """Open the page of a form, and return its fields with its key."""
    text = await visitor.get(form.page)
    start = text.find(f'action="{form.path}"')
    found = _KEY.search(text, start if start >= 0 else text.index('<main id="main"'))
    assert visitor.status == 200 and found, visitor.words
    return {**form.fields, "form_key": found[1]}


async def send(visitor: Visitor, path: str, fields: Mapping[str, str]) -> tuple[int, str]:
    """Send a form without following the redirect, and return the status and the next path."""
    token = re.search(r'name="form_token" value="([^"]*)"', visitor.text)
    data = {"form_token": token[1] if token else "", **fields}
    url = visitor._base.join(visitor._base.with_path(path))
    async with visitor._session.post(url, data=data, allow_redirects=False) as response:
        return response.status, response.headers.get("Location", await response.text())


@pytest.mark.parametrize("name", FORMS)
async def test_a_form_that_is_sent_twice_creates_once(
    name: str, site: Client, sign_in: SignIn, owner: asyncpg.Connection
) -> None:
    """At the same time and later. Both answers are redirects to the same page."""
    admin, form = await sign_in(site, "owner"), await make_form(site, name)
    fields = await open_form(admin, form)
    twice = await asyncio.gather(*(send(admin, form.path, fields) for _ in range(2)))
    answers = [*twice, await send(admin, form.path, fields)]
    assert {status for status, _ in answers} == {303}, answers
    assert len({urlsplit(place).path for _, place in answers}) == 1
    assert await owner.fetchval(f"select count(*) {form.count}") == EFFECTS.get(name, 1)
    if form.shows_secret:
        shown = [_SECRET.findall(await admin.get(answers[0][1])) for _ in range(2)]
        assert len(shown[0]) == 1 and shown[1] == []
        assert "was shown once" in admin.words


async def test_a_secret_is_shown_to_one_of_two_requests_and_to_no_other_session(
    site: Client, sign_in: SignIn
) -> None:
    admin, other = await sign_in(site, "owner"), await sign_in(site, "admin")
    form = await make_form(site, "key")
    _, place = await send(admin, form.path, await open_form(admin, form))
    assert not _SECRET.search(await other.get(place))
    texts = await asyncio.gather(*(_read(admin, place) for _ in range(4)))
    assert sum("new-key" in text for text in texts) == 1
    fields = {**form.fields, "form_key": "k" * 20}
    _, place = await send(admin, form.path, fields)
    async with Visitor(admin._base) as second:  # The same person in another session.
        await second.sign_in("owner@example.com")
        assert not _SECRET.search(await second.get(place))


async def _read(visitor: Visitor, path: str) -> str:
    async with visitor._session.get(f"{visitor._base}{path[1:]}") as response:
        return await response.text()


async def test_the_key_of_a_form_is_that_of_one_person(site: Client, sign_in: SignIn) -> None:
    form = await make_form(site, "invoice")
    first, second = await sign_in(site, "owner"), await sign_in(site, "member")
    fields = await open_form(first, form)
    await send(first, form.path, fields)
    await second.get("/invoices")
    status, text = await send(second, form.path, fields)
    assert status == 422 and "already been used" in text


async def test_back_after_saving_shows_the_invoice_and_saves_no_other(
    site: Client, sign_in: SignIn, owner: asyncpg.Connection
) -> None:
    """Back opens the address of the form again. A browser may also keep the page with its key."""
    member, form = await sign_in(site, "member"), await make_form(site, "invoice")
    await member.get("/invoices/new")
    async with member._session.get(f"{member._base}invoices/new") as response:
        address = str(response.url.relative())
    text = await member.get(address)
    fields = {**FormReader(text).fields, **INVOICE, "form_key": _KEY.findall(text)[-1]}
    await member.post(address, fields)
    page = member.path
    await member.get(address)
    assert member.path == page and "The form has created this document." in member.words
    status, text = await send(member, form.path, {**fields, "/code": "78"})
    assert status == 409 and f'href="{page}"' in text and "not saved" in text
    _, place = await send(member, form.path, {**fields, "do": "submit"})
    assert urlsplit(place).path == page
    assert await owner.fetchval("select count(*) from documents") == 1


async def test_a_refused_form_is_corrected_with_the_same_key(
    site: Client, sign_in: SignIn, owner: asyncpg.Connection
) -> None:
    member, form = await sign_in(site, "member"), await make_form(site, "invoice")
    fields = await open_form(member, form)
    status, text = await send(member, form.path, {**fields, "/lineItems/0/unit/price": "much"})
    assert status == 422 and fields["form_key"] in text
    assert (await send(member, form.path, fields))[0] == 303
    assert await owner.fetchval("select count(*) from documents") == 1


async def test_save_and_submit_twice_at_once_submits_one_invoice(
    site: Client, sign_in: SignIn, owner: asyncpg.Connection
) -> None:
    member, form = await sign_in(site, "member"), await make_form(site, "invoice")
    fields = {**await open_form(member, form), "do": "submit"}
    answers = await asyncio.gather(*(send(member, form.path, fields) for _ in range(4)))
    assert len(set(answers)) == 1 and answers[0][0] == 303
    assert await owner.fetchval("select count(*) from documents") == 1


@pytest.mark.parametrize("do", ("save", "submit"))
async def test_an_edit_that_is_sent_twice_is_saved_once(
    do: str, site: Client, sign_in: SignIn
) -> None:
    """A repetition shows what the first request has done, not that nothing is saved."""
    member, place = await sign_in(site, "member"), f"/invoices/{await create_invoice(site)}"
    text = await member.get(f"{place}/edit")
    fields = {**FormReader(text).fields, "/buyer/name": "Siti binti Omar", "do": do}
    twice = await asyncio.gather(*(send(member, f"{place}/edit", fields) for _ in range(3)))
    answers = {*twice, await send(member, f"{place}/edit", fields)}
    notices = {"save_submit"} if do == "submit" else {"saved", "sent_before"}
    assert answers == {(303, f"{place}?notice={notice}") for notice in notices}
    assert "Siti binti Omar" in await member.get(place)
    status, text = await send(member, f"{place}/edit", {**fields, "/buyer/name": "Siti"})
    assert status == 409 and "those were saved" in text


async def test_settings_that_are_sent_twice_are_saved_once(site: Client, sign_in: SignIn) -> None:
    admin = await sign_in(site, "owner")
    fields = {**FormReader(await admin.get("/settings/profile")).fields, "city": "Ipoh"}
    answers = await asyncio.gather(*(send(admin, "/settings/profile", fields) for _ in range(3)))
    notices = {"saved", "sent_before"}
    assert {*answers} == {(303, f"/settings/profile?notice={notice}") for notice in notices}


async def test_a_form_that_is_sent_again_submits_no_change_of_another(
    site: Client, sign_in: SignIn
) -> None:
    member, place = await sign_in(site, "member"), f"/invoices/{await create_invoice(site)}"
    text = await member.get(f"{place}/edit")
    fields = {**FormReader(text).fields, "do": "save"}
    await send(member, f"{place}/edit", fields)
    body = {"reference": "of another"}
    await request_json(site, "PUT", f"/api{place}", json=body)
    await send(member, f"{place}/edit", {**fields, "do": "submit"})
    assert (await get_invoice(site, int(place.rsplit("/", 1)[1])))["status"] == "Draft"


async def test_a_buyer_who_sends_the_request_twice_asks_once(
    site: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_invoice(site, type="PENDING_FINALIZE_INVOICE", buyer=None)
    place = f"/api/invoices/{invoice_id}/links"
    _, answer = await request_json(site, "POST", place, json={"purpose": "request"})
    path = urlsplit(answer["data"]["url"]).path
    async with Visitor(site.make_url("/")) as visitor:
        fields = await open_form(visitor, Form(path, path, BUYER_FORM, ""))
        answers = await asyncio.gather(*(send(visitor, path, fields) for _ in range(2)))
        assert {status for status, _ in answers} == {303}
        assert "Your request was sent to the seller." in await visitor.read_words(answers[0][1])
    assert await owner.fetchval("select count(*) from einvoice_requests") == 1


async def test_a_second_click_on_a_one_time_link_signs_in(
    site: Client, sign_in: SignIn, company: Company
) -> None:
    admin, form = await sign_in(site, "owner"), await make_form(site, "invitation")
    _, place = await send(admin, form.path, await open_form(admin, form))
    found = _SECRET.search(await admin.get(place))
    path = urlsplit(found[1] if found else "").path
    async with Visitor(site.make_url("/")) as visitor:
        await visitor.get(path)
        fields = {"username": "siti@example.com", "password": "four plain words together"}
        answers = await asyncio.gather(*(send(visitor, path, fields) for _ in range(2)))
        assert {status for status, _ in answers} == {303}
        for wrong in ({"password": "not this one at all"}, {"username": "nobody@example.com"}):
            assert (await send(visitor, path, {**fields, **wrong}))[0] == 404
