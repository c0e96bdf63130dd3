"""The dashboard in a browser: Chromium, driven by playwright."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from service.config import read_config
from service.dashboard.consolidation import MOST_PLANNED
from service.dashboard.documents import COUNT_TO
from tests.api.test_exports import insert_copies
from tests.api_invoices import create_invoice, create_sale
from tests.conftest import Client, Company, StartService
from tests.dashboard.test_outcomes import check_words
from tests.harness.bodies import last_month
from tests.harness.browsers import needs_browser, open_browser
from tests.harness.visitors import PASSWORD, make_person

pytestmark = needs_browser

EMAIL = "aminah@example.com"
# Unlike `wait_for_url` this survives that the second click ends the request of the first.
IS_SUBMITTED = "() => location.search === '?notice=save_submit'"


@pytest.fixture
async def site(start: StartService) -> Client:
    """A service with background work."""
    return await start(CONSOLIDATION_DAYS="366")


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture
async def page(
    site: Client, browser: Any, environment: dict[str, str], company: Company
) -> AsyncIterator[Any]:
    """A page of an owner who has signed in by the printed link."""
    context = await browser.new_context(base_url=str(site.make_url("/")))
    page = await context.new_page()
    errors: list[str] = []
    page.on("dialog", lambda dialog: dialog.accept())
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: errors.append(message.text) if "Content Security" in message.text else None,
    )
    await sign_in(page, environment, company.id, EMAIL, "owner")
    yield page
    assert errors == []
    await context.close()


async def sign_in(
    page: Any, environment: dict[str, str], company_id: int, email: str, role: str
) -> None:
    """Invite a person and sign in by the link."""
    link = await make_person(read_config(environment), company_id, email, role)
    await page.goto("/link/" + link.rsplit("/", 1)[1])
    await page.get_by_label("New password").fill(PASSWORD)
    await page.get_by_role("button", name="Accept the role and sign in").click()
    await page.wait_for_url("**/")


async def fill_invoice(page: Any, **changes: str) -> None:
    """Fill the form of a new invoice."""
    fields = {
        "/buyer/name": "Aminah binti Salleh",
        "/buyer/registration/number": "900101105566",
        "/buyer/contactNumber": "+60123456789",
        "/buyer/address/line1": "5 Jalan Dahlia",
        "/buyer/address/zipCode": "40150",
        "/buyer/address/city": "Shah Alam",
        "/lineItems/0/description": "Coffee beans, 1 kg",
        "/lineItems/0/unit/price": "48.50",
        "/lineItems/0/unit/count": "2",
        "/lineItems/0/taxDetails/0/taxRate/percentage": "8",
        **changes,
    }
    await page.goto("/invoices/new")
    for name, text in fields.items():
        await page.locator(f'[name="{name}"]').fill(text)
    await page.locator('[name="/buyer/type"]').select_option("LOCAL_INDIVIDUAL")
    await page.locator('[name="/buyer/registration/type"]').select_option("NRIC")
    await page.locator('[name="/buyer/address/state"]').select_option("10")
    await page.locator('[name="/lineItems/0/taxDetails/0/taxType"]').select_option("02")


async def test_a_rejected_invoice_shows_its_reason_at_the_field_and_is_corrected(page: Any) -> None:
    await fill_invoice(page, **{"/buyer/contactNumber": "12"})
    await page.get_by_role("button", name="Save and submit").click()
    await page.get_by_text("It was not submitted: see below.").wait_for()
    await page.get_by_role("link", name="Edit").click()
    field = page.locator('[name="/buyer/contactNumber"]')
    assert await field.get_attribute("aria-invalid") == "true"
    described = (await field.get_attribute("aria-describedby") or "").split()
    assert await page.locator(f'[id="{described[0]}"]').inner_text()
    await field.fill("+60123456789")
    await page.get_by_role("button", name="Save and submit").click()
    await page.get_by_text("The document is submitted.").wait_for()


async def test_a_button_stays_where_it_is_while_totals_are_computed(page: Any) -> None:
    await page.goto("/invoices/new")
    await fill_invoice(page, **{"/lineItems/0/unit/price": ""})
    await page.locator('[name="/lineItems/0/unit/price"]').fill("7")
    await page.get_by_role("button", name="Save as draft").hover()
    async with page.expect_response(re.compile("/invoices/new")) as totals:
        await page.mouse.down()
    assert len(await (await totals.value).text()) < 1_000  # not the whole page
    await page.locator("#totals").get_by_text("MYR").first.wait_for()
    await page.mouse.up()
    await page.wait_for_url("**/invoices/*?notice=created")


async def read_focus(page: Any) -> str:
    """Return the name of the field with the cursor, or its id. It must be in view."""
    is_seen = """() => {
      const box = document.activeElement.getBoundingClientRect();
      return box.top >= 0 && box.bottom <= window.innerHeight;
    }"""
    await page.wait_for_function(is_seen)
    return await page.evaluate("document.activeElement.name || document.activeElement.id")


async def test_the_cursor_stays_where_the_work_is(page: Any) -> None:
    await fill_invoice(page)
    for number in (1, 2):
        await page.get_by_role("button", name="Add a line").click()
        await page.locator(f'[name="/lineItems/{number}/description"]').wait_for()
        assert await read_focus(page) == f"/lineItems/{number}/description"
    await page.get_by_role("button", name="Remove line 3").click()
    await page.locator('[name="/lineItems/2/description"]').wait_for(state="detached")
    assert await read_focus(page) == "/lineItems/1/description"
    await page.locator('[name="/lineItems/1/description"]').fill("Tea")
    await page.locator('[name="/lineItems/1/unit/price"]').fill("much")
    await page.get_by_role("button", name="Save as draft").click()
    await page.get_by_role("alert").wait_for()
    assert await read_focus(page) == "/lineItems/1/unit/price"
    outline = "getComputedStyle(document.activeElement).outlineWidth"
    assert await page.evaluate(outline) == "3px"  # also of a field with an error
    await page.locator('[name="/lineItems/1/unit/price"]').fill("5")
    await page.get_by_role("button", name="Calculate totals").last.click()
    await page.get_by_role("alert").wait_for(state="detached")
    assert await read_focus(page) == "totals"


async def test_a_changed_form_asks_before_it_is_left(page: Any) -> None:
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.type))
    await page.goto("/invoices/new")
    await page.locator('[name="/buyer/name"]').click()
    await page.get_by_role("link", name="Overview").click()
    await page.wait_for_url("**/")
    assert asked == []
    await fill_invoice(page)
    await page.get_by_role("link", name="Leave without saving").click()
    await page.wait_for_url("**/invoices")
    assert asked == []
    await fill_invoice(page)
    await page.get_by_role("link", name="Overview").click()
    await page.wait_for_url("**/")
    assert asked == ["beforeunload"]
    await fill_invoice(page)
    await page.get_by_role("button", name="Save as draft").click()
    await page.get_by_text("The document is saved as a draft.").wait_for()
    assert asked == ["beforeunload"]


async def read_checked(page: Any, *expected: str) -> None:
    """Wait for sentences on the page, and fail if it has contradicting ones."""
    for text in expected:
        await page.get_by_text(text).first.wait_for()
    check_words(await page.locator("main").inner_text(), *expected)


async def test_an_invoice_from_entry_to_credit_with_two_tabs_and_an_expired_session(
    page: Any, owner: asyncpg.Connection
) -> None:
    """Nothing that the pages say is untrue, and each document is created once."""
    await fill_invoice(page, **{"/buyer/tin": "C5510387420"})
    other = await page.context.new_page()
    await other.goto("/confirm")
    await other.get_by_label("Password").fill(PASSWORD)
    await other.get_by_role("button", name="Continue").click()
    await other.wait_for_url("**/")
    await owner.execute("update user_sessions set ended_at = now()")
    await page.get_by_role("button", name="Save and submit").click()
    await read_checked(page, "Your session has ended, and nothing was saved.")
    assert await owner.fetchval("select count(*) from documents") == 0
    await page.get_by_label("Email address").fill(EMAIL)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await read_checked(page, "Your entries are kept", "They are not sent yet.")
    await page.get_by_role("button", name="Send them now").dblclick()
    await page.wait_for_function(IS_SUBMITTED)
    await read_checked(page)
    place = page.url.partition("?")[0]
    async with asyncio.timeout(60):
        while "Invalid" not in await page.locator("h1").inner_text():
            await page.goto(f"{place}?notice=save_submit")
            await read_checked(page)
    await read_checked(page, "The document was submitted, and the portal found it invalid")
    await other.goto("/")
    await other.get_by_role("link", name="Correct it").click()
    await read_checked(other, "does not belong to the TIN")
    assert await read_focus(other) == "/buyer/tin"
    await other.locator('[name="/buyer/tin"]').fill("")
    await other.get_by_role("button", name="Save and submit").dblclick()
    await other.wait_for_function(IS_SUBMITTED)
    await read_checked(other)
    async with asyncio.timeout(60):
        while "Valid" not in await other.locator("h1").inner_text():
            await other.reload()
            await read_checked(other)
    await read_checked(other, "The document is submitted. The portal has validated it.")
    await other.get_by_role("link", name="Create a note").click()
    await other.locator('[name="/lineItems/0/unit/count"]').fill("1")
    await other.get_by_role("button", name="Save as draft").click()
    await read_checked(other, "The document is saved as a draft.")
    await other.go_back()
    await read_checked(other, "The form has created this document.")
    await other.get_by_role("button", name="Submit to the portal").click()
    await read_checked(other, "The document is submitted.")
    await page.goto(place)
    await read_checked(page, "Credit note")
    kinds = await owner.fetch("select kind from documents order by id")
    assert [row["kind"] for row in kinds] == ["invoice", "adjustment_note"]


async def test_lines_are_added_and_removed(page: Any) -> None:
    await fill_invoice(page)
    await page.get_by_role("button", name="Add a line").click()
    await page.locator('[name="/lineItems/1/description"]').fill("Tea")
    await page.get_by_role("button", name="Remove line 1").click()
    field = page.locator('[name="/lineItems/0/description"]')
    await page.get_by_text("Line 1").wait_for()
    assert await field.input_value() == "Tea"
    assert await page.locator('[name="/lineItems/1/description"]').count() == 0


async def test_a_buyer_asks_on_the_public_page_and_is_approved(
    page: Any, browser: Any, site: Client
) -> None:
    invoice_id = await create_invoice(site, type="PENDING_FINALIZE_INVOICE", code=4711, buyer=None)
    await page.goto(f"/invoices/{invoice_id}")
    await page.get_by_role("button", name="Make a link for the buyer's details").click()
    link = await page.locator("#new-url").inner_text()
    context = await browser.new_context(base_url=str(site.make_url("/")))
    visitor = await context.new_page()
    await visitor.goto("/receipt/" + link.rsplit("/", 1)[1])
    for name, text in {
        "/name": "Aminah binti Salleh",
        "/registration/number": "900101105566",
        "/contactNumber": "+60123456789",
        "/address/line1": "5 Jalan Dahlia",
        "/address/city": "Shah Alam",
    }.items():
        await visitor.locator(f'[name="{name}"]').fill(text)
    await visitor.locator('[name="/address/state"]').select_option("10")
    await visitor.get_by_role("button", name="Ask for the e-invoice").click()
    await visitor.get_by_text("Your request was sent to the seller.").wait_for()
    await context.close()
    await page.goto("/")
    await page.get_by_role("link", name="Answer").click()
    await page.get_by_role("button", name="Approve").click()
    await page.get_by_text("The request is approved.").wait_for()
    await page.get_by_role("link", name="Show all").click()
    await page.get_by_role("link", name="4711").click()
    await page.get_by_text("Aminah binti Salleh").first.wait_for()


async def test_a_search_with_very_many_matches_is_counted_in_part(
    page: Any, site: Client, owner: asyncpg.Connection
) -> None:
    await insert_copies(owner, await create_invoice(site), COUNT_TO + 2)
    await page.goto("/invoices?query=Aminah")
    await page.get_by_text("1 to 25 of more than 1,000").wait_for()
    await page.get_by_role("link", name="Next").click()
    await page.get_by_text("26 to 50 of more than 1,000").wait_for()
    await page.goto("/invoices?query=Aminah&page=41")
    await page.get_by_text("1,001 to 1,002 of 1,002").wait_for()
    await page.goto("/invoices")
    await page.get_by_text("1 to 25 of 1,002").wait_for()


#: Adds copies of a sale with the codes that follow 100000.
COPY_SALE = """
insert into documents (company_id, kind, code, code_year, type, issue_date, line_items, net_amount,
       excluding_tax, including_tax, payable_amount, bytes, optional_members)
select company_id, kind, 100000 + n, code_year, type, issue_date, line_items, net_amount,
       excluding_tax, including_tax, payable_amount, bytes, optional_members
  from documents, generate_series(1, $2::int) n
 where id = $1
"""


async def test_sales_of_a_month_are_consolidated(
    page: Any, site: Client, owner: asyncpg.Connection
) -> None:
    """The lines are shown at once for few sales, and on demand for many."""
    sale = await create_sale(site)
    await create_invoice(site, issueDateTime=last_month(), code=4711)
    await page.goto("/consolidated/plan")
    text = await page.locator("main").inner_text()
    assert "are included: 1" in text and "are left out: 1" in text
    assert await page.get_by_role("link", name="INV-04711", exact=True).count() == 1
    await owner.execute(COPY_SALE, sale, MOST_PLANNED)
    await page.goto("/consolidated/plan")
    text = await page.locator("main").inner_text()
    assert "are included: 301" in text and "are left out: 1" in text
    assert "Receipts" not in text
    await page.get_by_role("link", name="Show the lines").click()
    await page.get_by_text("Receipts INV-").first.wait_for()
    await page.get_by_role("button", name="Create as a draft").click()
    await page.get_by_text("The document is saved as a draft.").wait_for()
    await page.goto(f"/invoices/{sale}")
    await page.get_by_text("Part of", exact=True).wait_for()
