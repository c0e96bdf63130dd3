"""The pages of the dashboard for people with screen readers, keyboards, small or dark screens.

axe checks each page, in a browser.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest
from yarl import URL

from service.config import read_config
from service.dashboard.links import PASSWORD as PASSWORD_LINK
from service.dashboard.links import SIGN_IN, NewLink, make_link
from service.dashboard.people import Person, invite
from service.dashboard.table import make_page_routes
from service.db.pool import connected_pool
from service.db.statements import sql
from service.db.transactions import Database, acting_as
from tests.api_invoices import create_delivery, create_invoice, create_sale, create_valid_invoice
from tests.api_reads import wait_for_status
from tests.api_requests import create_record, expect, submit
from tests.conftest import Client, Company, make_company, some_long
from tests.harness.bodies import STRANGER, buyer, note, now
from tests.harness.browsers import needs_browser, open_browser
from tests.harness.visitors import PASSWORD, make_person

axe = pytest.importorskip(
    "axe_playwright_python.async_playwright", reason="axe-playwright-python is not installed"
)
pytestmark = needs_browser

EMAIL = "aminah@example.com"
#: Only these rules depend on the colours of the dark scheme. Each page is the same document.
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
ASK = {"invoiceCode": "4711", **buyer()}
#: Opens a page in a state that can be checked.
Open = Callable[[Any], Awaitable[Any]]


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture
async def links(environment: dict[str, str], company: Company) -> dict[str, str]:
    """Return the paths of links, by what they ask for. The last one is the owner's."""
    config = read_config(environment)
    other = await make_company(environment)
    made = {}
    async with connected_pool(config.database_url, 1) as pool:
        database = Database(pool)
        for name, purpose, companies in (
            ("nothing", SIGN_IN, (company,)),
            ("the operator", PASSWORD_LINK, (other, company)),
            ("the present password", PASSWORD_LINK, (other, company)),
        ):
            person = Person(f"{name.replace(' ', '-')}@example.com", "Siti")
            invited = [await invite(database, each.id, person, "member") for each in companies]
            user_id = invited[0][0]
            if name == "the present password":
                async with database.across() as conn:
                    await sql.user_set_password(conn, user_id=user_id, password_hash="x")
            new = NewLink(user_id, company.id, purpose=purpose)
            made[name] = await make_link(database, "http://127.0.0.1", new)
    made["a new password"] = await make_person(config, company.id, EMAIL, "owner")
    return {name: "/link/" + link.rpartition("/")[2] for name, link in made.items()}


@pytest.mark.parametrize(
    ("width", "scheme"),
    some_long([(390, "light"), (1280, "dark"), (390, "dark"), (1280, "light")]),
)
async def test_no_page_has_serious_accessibility_violations(
    site: Client,
    browser: Any,
    links: dict[str, str],
    environment: dict[str, str],
    company: Company,
    width: int,
    scheme: str,
) -> None:
    ids = await create_documents(site)
    others = await create_others(site, ids)
    invited = {
        "a pending role": partial(open_pending_role, environment),
        "a link that a colleague made": partial(open_link_of_colleague, environment, company),
    }
    pages = {**list_public_pages(links), **list_pages(ids), **others, **invited}
    context = await browser.new_context(
        base_url=str(site.make_url("/")),
        viewport={"width": width, "height": 844},
        color_scheme=scheme,
    )
    page = await context.new_page()
    problems: list[str] = []
    page.on("response", lambda response: problems.extend(find_failure(response)))
    for name, open_page in pages.items():
        await open_page(page)
        found = await find_problems(page, COLOUR_RULES if scheme == "dark" else None)
        problems += [f"{name}: {problem}" for problem in found]
    await context.close()
    assert not problems, "\n".join(problems)


async def create_documents(site: Client) -> dict[str, int]:
    """Create invoices in several statuses and a buyer's request, and return the invoices' ids."""
    ids = {
        "draft": await create_invoice(site),
        "incomplete": await create_invoice(site, buyer={"name": "Lim", "contactNumber": "12"}),
        "not final": await create_invoice(
            site, type="PENDING_FINALIZE_INVOICE", code=4711, buyer=None
        ),
        "invalid": await create_invoice(site, buyer=STRANGER),
        "valid": await create_valid_invoice(site),
    }
    await submit(site, ids["invalid"])
    await wait_for_status(site, ids["invalid"], "Invalid")
    await expect(site, 201, "POST", "/api/einvoice-requests", json=ASK)
    return ids


async def create_others(site: Client, ids: Mapping[str, int]) -> dict[str, Open]:
    """Create a record of every other kind, with links, and return their pages by name."""
    place = f"/api/invoices/{ids['valid']}"
    note_id = (await create_record(site, f"{place}/adjustment-note", **note()))["id"]
    sales = {"type": "CONSOLIDATED_INVOICE", "code": 1, "issueDateTime": now()}
    sales["invoiceIds"] = [await create_sale(site)]
    consolidated_id = (await create_record(site, "/api/consolidated-invoices", **sales))["id"]
    webhook_id = (await create_record(site, "/api/webhooks", url="http://127.0.0.1:9/"))["id"]
    await create_delivery(site, webhook_id)
    links = [
        await create_record(site, f"/api/invoices/{ids[name]}/links", purpose=purpose)
        for name, purpose in (("valid", "view"), ("not final", "request"))
    ]
    shared, receipt = [URL(link["url"]).path for link in links]
    paths = {
        "note": f"/notes/{note_id}",
        "consolidated invoice": f"/consolidated/{consolidated_id}",
        "webhook with deliveries": f"/settings/webhooks/{webhook_id}",
        "links of a document": f"/invoices/{ids['not final']}",
        "shared printed page": shared,
        "receipt": receipt,
        "link that is gone": "/shared/unknown",
        "buyer requests that do not match": "/requests?query=nothing",
    }
    return {
        **{name: partial(go, path) for name, path in paths.items()},
        "incomplete receipt": partial(press_in_form, receipt, "Ask for the e-invoice"),
        "new link": partial(
            press_in_form, f"/invoices/{ids['valid']}", "Make a link to the printed page"
        ),
        "new webhook": partial(press_in_form, "/settings/webhooks", "Create the webhook"),
        "wrong default tax": open_wrong_default_tax,
    }


def list_public_pages(links: Mapping[str, str]) -> dict[str, Open]:
    """Return the pages that need no session, by name. The last one is of a link that signs in."""
    return {
        "sign-in": partial(go, "/sign-in"),
        "wrong password": open_wrong_password,
        "link that does not exist": partial(go, "/link/unknown"),
        **{f"link that asks for {name}": partial(go, link) for name, link in links.items()},
        "overview after sign-in": accept_role,
    }


def list_pages(ids: Mapping[str, int]) -> dict[str, Open]:
    """Return the pages that need a session, by name. Those without an id are found by their route.

    The last ones end in a POST.
    """
    routes = {route.path for route in make_page_routes() if route.method == "GET"}
    plain = sorted(
        path for path in routes if "{" not in path and "." not in path and path != "/sign-in"
    )
    documents = {f"invoice, {name}": f"/invoices/{record}" for name, record in ids.items()}
    others = {
        "edit": f"/invoices/{ids['invalid']}/edit",
        "note": f"/invoices/{ids['valid']}/note",
        "no document found": "/invoices?query=nothing",
        "wrong filter": "/invoices?issued_from=soon",
        "not found": "/invoices/999999999",
    }
    paths = {**{path: path for path in plain}, **documents, **others}
    return {
        **{name: partial(go, path) for name, path in paths.items()},
        "menu": open_menu,
        "totals": partial(press_in_form, "/invoices/new", "Calculate totals"),
        "two lines": partial(press_in_form, "/invoices/new", "Add a line"),
        "violations": partial(press_in_form, "/invoices/new", "Save as draft"),
        "refused submit": partial(press_in_form, documents["invoice, incomplete"], "Submit"),
        "new key": open_new_key,
        "wrong invitation": partial(press_in_form, "/settings/people", "Invite"),
        "wrong portal credentials": partial(
            press_in_form, "/settings/portal", "Test and use these credentials"
        ),
        "test of the portal": partial(press_in_form, "/settings/portal", "Test the connection"),
        "new password link": open_new_link,
        "wrong current password": partial(press_in_form, "/password", "Change the password"),
    }


async def go(path: str, page: Any) -> None:
    await page.goto(path)


async def click(page: Any, name: str) -> None:
    """Click the last button of a name, and wait for the page that follows."""
    async with page.expect_navigation():
        await page.get_by_role("button", name=name).last.click()


async def accept_role(page: Any) -> None:
    """Choose a password and accept the role, in the form of a link."""
    await page.get_by_label("New password").fill(PASSWORD)
    await click(page, "Accept the role and sign in")


async def open_pending_role(environment: dict[str, str], page: Any) -> None:
    """Invite the owner to another company, and open the list of the owner's companies."""
    other = await make_company(environment)
    await make_person(read_config(environment), other.id, EMAIL, "reader")
    await page.goto("/companies")


async def open_link_of_colleague(environment: dict[str, str], company: Company, page: Any) -> None:
    """Make a link for the owner as another person, and open the overview with its notice."""
    config = read_config(environment)
    async with connected_pool(config.database_url, 1) as pool:
        database = Database(pool)
        async with database.across() as conn:
            owner = await sql.user_account(conn, email=EMAIL)
            colleague = await sql.user_account(conn, email="nothing@example.com")
        with acting_as(f"user {colleague['id']}"):
            await make_link(database, "http://127.0.0.1", NewLink(owner["id"], company.id))
    await page.goto("/")
    assert await page.get_by_role("button", name="I have seen this").count() == 1


async def press_in_form(path: str, name: str, page: Any) -> None:
    """Open a form and send it as it is, without the browser's own checks."""
    await page.goto(path)
    await page.evaluate("for (const form of document.forms) form.noValidate = true")
    await click(page, name)


async def open_wrong_default_tax(page: Any) -> None:
    """Enter a default tax without a rate."""
    await page.goto("/settings/numbers")
    await page.get_by_label("Tax optional", exact=True).select_option("02")
    await click(page, "Save")


async def open_wrong_password(page: Any) -> None:
    await page.goto("/sign-in")
    await page.get_by_label("Email").fill(EMAIL)
    await page.get_by_label("Password").fill("wrong")
    await click(page, "Sign in")


async def open_menu(page: Any) -> None:
    """Open the menu that only small screens show, without a change of the focus."""
    await page.goto("/")
    await page.evaluate("document.querySelector('.menu').open = true")


async def open_new_key(page: Any) -> None:
    """Create a key, which is shown once."""
    await page.goto("/settings/keys")
    await page.get_by_label("Name").fill("Shop")
    await click(page, "Create the key")


async def open_new_link(page: Any) -> None:
    """Make a link with which a person chooses a password."""
    await page.goto("/settings/people")
    await click(page, "New link Siti")


def find_failure(response: Any) -> list[str]:
    """Return the problem of a response that is an internal error, if it is one."""
    return [f"{response.url}: {response.status}"] if response.status >= 500 else []


async def find_problems(page: Any, rules: list[str] | None = None) -> list[str]:
    """Return the problems of the page that is open, by all rules of axe or by some."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    results = await axe.Axe().run(page, options=options)
    found = list_violations(results.response)
    overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if overflow > 0:
        found.append(f"scrolls horizontally by {overflow} pixels")
    # From the start of the page: a form may have put the cursor into one of its fields.
    await page.evaluate("document.body.tabIndex = -1; document.body.focus()")
    await page.keyboard.press("Tab")
    focused = await page.evaluate("document.activeElement.outerHTML")
    if await page.locator(".skip").count() and 'class="skip"' not in focused:
        found.append(f"Tab reaches another element before the skip link: {focused[:200]}")
    return found


def list_violations(response: Mapping[str, Any]) -> list[str]:
    """Return the severe violations that axe found, each with its rule and its element."""
    return [
        f"{rule['id']} ({rule['impact']}): {node['target'][0]} {node['html'][:200]}"
        for rule in response["violations"]
        if rule["impact"] in {"serious", "critical"}
        for node in rule["nodes"]
    ]
