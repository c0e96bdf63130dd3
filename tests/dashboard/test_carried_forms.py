"""Forms of a session that has ended: they are kept while the person signs in again."""

from html.parser import HTMLParser
from ipaddress import ip_network

import asyncpg
import pytest

from service.config import Config, read_config
from service.http import app_keys
from tests.api_invoices import create_invoice
from tests.conftest import Client, Company, make_company
from tests.dashboard.test_form_repetition import INVOICE
from tests.dashboard.test_forms import make_largest_lines
from tests.fixtures_dashboard import SignIn
from tests.harness.visitors import PASSWORD, Visitor, join, make_person

SCRIPT = "<script>document.title='broken'</script>\"'"
COUNT = "select count(*) from documents"
LEFT_OUT = "The form before was not sent"


class CarriedForm(HTMLParser):
    """Reads the address and the hidden fields of the form in the content of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.feed(page[page.index('<main id="main"') :])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the address and a field."""
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = found["action"]
        elif tag == "input" and found.get("type") == "hidden":
            self.fields[found["name"]] = found["value"]


async def end_sessions(owner: asyncpg.Connection) -> None:
    await owner.execute("update user_sessions set seen_at = seen_at - interval '31 minutes'")


async def sign_in_with(visitor: Visitor, email: str) -> None:
    """Sign in by the form on the page, with all of its fields."""
    fields = CarriedForm(visitor.text).fields
    await visitor.post("/sign-in", {**fields, "email": email, "password": PASSWORD})


async def send_carried(visitor: Visitor) -> None:
    """Press the button that sends the form that was kept."""
    form = CarriedForm(visitor.text)
    await visitor.post(form.action, form.fields)


async def test_a_form_is_sent_after_the_next_sign_in(
    site: Client, member: Visitor, owner: asyncpg.Connection
) -> None:
    await member.get("/invoices/new")
    await end_sessions(owner)
    fields = {**INVOICE, "/buyer/name": SCRIPT, "form_key": "k" * 30}
    await member.post("/invoices/new", fields)
    assert member.status == 401 and "Your session has ended" in member.words
    assert SCRIPT not in member.text and await owner.fetchval(COUNT) == 0
    wrong = CarriedForm(member.text).fields
    await member.post("/sign-in", {**wrong, "email": "member@example.com", "password": "wrong"})
    assert member.status == 401
    await sign_in_with(member, "member@example.com")
    assert (member.status, await owner.fetchval(COUNT)) == (200, 0)
    assert SCRIPT not in member.text and "Your entries are kept" in member.words
    page = member.text
    await send_carried(member)
    assert member.status == 200 and member.path.startswith("/invoices/")
    assert await owner.fetchval("select buyer ->> 'name' from documents") == SCRIPT
    member.text = page
    await send_carried(member)
    assert member.path.startswith("/invoices/") and await owner.fetchval(COUNT) == 1


def use_up_tries(site: Client, email: str) -> None:
    """Use up the tries of a person from the network of the tests."""
    network = ip_network("127.0.0.0/24")
    while not site.app[app_keys.LIMITS].tries.take((email, network)):
        pass


async def test_a_form_is_kept_after_too_many_tries_to_sign_in(
    site: Client, member: Visitor, owner: asyncpg.Connection
) -> None:
    await member.get("/invoices/new")
    await end_sessions(owner)
    await member.post("/invoices/new", INVOICE)
    carried = CarriedForm(member.text).fields["carried"]
    use_up_tries(site, "member@example.com")
    await sign_in_with(member, "member@example.com")
    assert member.status == 429 and "Too many attempts" in member.words
    assert member.headers["Retry-After"].isdigit() and 'value="member@example.com"' in member.text
    assert CarriedForm(member.text).fields["carried"] == carried


async def test_a_form_is_kept_after_too_many_tries_to_confirm(
    site: Client, admin: Visitor, owner: asyncpg.Connection
) -> None:
    await admin.get("/settings/keys")
    await owner.execute("update user_sessions set authenticated_at = now() - interval '11 minutes'")
    await admin.post("/settings/keys", {"name": "Shop"})
    carried = CarriedForm(admin.text).fields
    use_up_tries(site, "admin@example.com")
    await admin.post("/confirm", {**carried, "password": PASSWORD})
    assert admin.status == 429 and admin.headers["Retry-After"].isdigit()
    assert CarriedForm(admin.text).fields["carried"] == carried["carried"]


async def test_the_largest_form_of_a_document_is_kept(
    member: Visitor, owner: asyncpg.Connection
) -> None:
    await member.get("/invoices/new")
    await end_sessions(owner)
    lines = make_largest_lines()
    await member.post("/invoices/new", {**INVOICE, **lines})
    assert member.status == 401
    await sign_in_with(member, "member@example.com")
    fields = CarriedForm(member.text).fields
    assert {name: fields[name] for name in lines} == lines
    await send_carried(member)
    assert member.status == 422


async def test_a_violation_after_the_sign_in_shows_the_form_with_its_content(
    member: Visitor, owner: asyncpg.Connection
) -> None:
    await member.get("/invoices/new")
    await end_sessions(owner)
    await member.post("/invoices/new", {**INVOICE, "/lineItems/0/unit/price": "much"})
    await sign_in_with(member, "member@example.com")
    await send_carried(member)
    assert member.status == 422 and 'value="much"' in member.text
    assert 'value="Coffee"' in member.text


async def test_a_form_of_another_person_is_left_out(
    site: Client, member: Visitor, sign_in: SignIn, owner: asyncpg.Connection
) -> None:
    await sign_in(site, "admin")
    await member.get("/invoices/new")
    await end_sessions(owner)
    await member.post("/invoices/new", INVOICE)
    await sign_in_with(member, "admin@example.com")
    assert member.path == "/" and LEFT_OUT in member.words and "Coffee" not in member.text
    assert await owner.fetchval(COUNT) == 0


@pytest.mark.parametrize("token", ["", "wrong", "1.wrong", "0.", "99999999999999999999.x"])
async def test_a_forged_form_is_left_out(
    token: str, member: Visitor, owner: asyncpg.Connection
) -> None:
    await end_sessions(owner)
    await member.post("/invoices/new", INVOICE, token=token)
    await sign_in_with(member, "member@example.com")
    assert member.path == "/" and LEFT_OUT in member.words
    await member.post("/invoices/new", INVOICE, token=token)
    assert member.status == 403 and await owner.fetchval(COUNT) == 0


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_a_form_from_another_site_is_not_kept(
    headers: dict[str, str], member: Visitor, owner: asyncpg.Connection
) -> None:
    await end_sessions(owner)
    await member.post("/invoices/new", INVOICE, headers=headers)
    assert member.status == 403 and "Coffee" not in member.text


@pytest.mark.parametrize("field", ["key", "password", "current", "client_secret"])
async def test_a_form_with_a_secret_is_not_kept(
    field: str, member: Visitor, owner: asyncpg.Connection
) -> None:
    await end_sessions(owner)
    await member.post("/settings/certificate", {field: "s3cret", "certificate": "Coffee"})
    assert member.path == "/sign-in" and "Coffee" not in member.text


async def test_a_form_is_sent_for_the_company_that_it_was_opened_for(
    site: Client, environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> None:
    """The session after the sign-in shows that company, not the first one."""
    other = await make_company(environment, name="Zweite Sdn. Bhd.")
    config, base = read_config(environment), site.make_url("/")
    for each in (company, other):
        await join(config, base, each.id, "siti@example.com", "member")
    async with Visitor(base) as person:
        await person.sign_in("siti@example.com")
        await person.post("/companies", {"company": str(other.id)})
        await person.get("/invoices/new")
        await end_sessions(owner)
        await person.post("/invoices/new", INVOICE)
        await sign_in_with(person, "siti@example.com")
        await send_carried(person)
        assert await owner.fetchval("select company_id from documents") == other.id
        await person.get("/invoices/new")
        page = person.text
        await person.post("/companies", {"company": str(company.id)})
        person.text = page
        await person.post("/invoices/new", {**INVOICE, "/code": "78"})
        assert person.status == 403 and "opened for another company" in person.words
        assert await owner.fetchval(COUNT) == 1
        await owner.execute("delete from company_members where company_id = $1", other.id)
        person.text = page
        await end_sessions(owner)
        await person.post("/invoices/new", {**INVOICE, "/code": "78"})
        await sign_in_with(person, "siti@example.com")
        assert LEFT_OUT in person.words and await owner.fetchval(COUNT) == 1


async def test_a_password_entered_in_another_tab_keeps_the_form(
    site: Client, member: Visitor, owner: asyncpg.Connection
) -> None:
    await member.get("/invoices/new")
    page = member.text
    await member.fill_in("/confirm", {"password": PASSWORD, "next": "/"})
    assert member.path == "/"
    member.text = page
    await member.post("/invoices/new", INVOICE)
    assert member.path.startswith("/invoices/") and await owner.fetchval(COUNT) == 1


async def test_a_form_that_needs_the_password_again_is_kept(
    site: Client, admin: Visitor, owner: asyncpg.Connection
) -> None:
    await admin.get("/settings/keys")
    await owner.execute("update user_sessions set authenticated_at = now() - interval '11 minutes'")
    await admin.post("/settings/keys", {"name": "Shop", "form_key": "k" * 30})
    assert admin.status == 401 and "Enter your password again" in admin.words
    fields = CarriedForm(admin.text).fields
    await admin.post("/confirm", {**fields, "password": "wrong"})
    assert admin.status == 401
    await admin.post("/confirm", {**CarriedForm(admin.text).fields, "password": PASSWORD})
    assert "Your entries are kept" in admin.words
    await send_carried(admin)
    assert 'id="new-key"' in admin.text
    assert await owner.fetchval("select count(*) from api_keys where name = 'Shop'") == 1


async def test_a_long_field_is_kept_while_the_password_is_entered_again(
    admin: Visitor, owner: asyncpg.Connection
) -> None:
    await admin.get("/settings/webhooks")
    await owner.execute("update user_sessions set authenticated_at = now() - interval '11 minutes'")
    await admin.post("/settings/webhooks", {"url": "https://example.com/" + "a" * 9000})
    assert admin.status == 401
    await admin.post("/confirm", {**CarriedForm(admin.text).fields, "password": PASSWORD})
    await send_carried(admin)
    assert admin.status == 422 and "a" * 9000 in admin.text


async def test_a_person_without_a_password_chooses_one_when_it_is_needed(
    site: Client, company: Company, owner: asyncpg.Connection, config: Config
) -> None:
    link = await make_person(config, company.id, "siti@example.com", "owner")
    await owner.execute("update user_links set purpose = 'sign_in'")
    async with Visitor(site.make_url("/")) as person:
        await person.use_link(link)
        assert 'href="/password"' in person.text and "no password yet" in person.words
        await person.get("/settings/keys")
        assert "Choose a password before you change this." in person.words
        await person.post("/settings/keys", {"name": "Shop"})
        assert person.path == "/password" and "no password yet" not in person.words
        await person.post("/password", {"password": "other words that I chose"})
        assert "Your password is stored." in person.words
        assert "no password yet" not in person.words


async def test_the_button_of_a_document_is_kept(
    site: Client, member: Visitor, owner: asyncpg.Connection
) -> None:
    path = f"/invoices/{await create_invoice(site)}"
    await member.get(path)
    await end_sessions(owner)
    await member.post(f"{path}/delete")
    await sign_in_with(member, "member@example.com")
    assert await owner.fetchval(f"{COUNT} where deleted_at is null") == 1
    await send_carried(member)
    assert "The document is deleted." in member.words
