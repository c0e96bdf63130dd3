"""The printed page in a browser: the pages of its PDF, sizes of text, and a narrow screen."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api_invoices import create_valid_invoice
from tests.conftest import Client
from tests.harness.bodies import buyer, line
from tests.harness.browsers import needs_browser, open_browser

pytestmark = needs_browser

NAMES = (
    ("Arabica coffee beans, medium roast, 1 kg bag", "KGM"),
    ("Espresso machine service, including descaling and a new gasket", "HUR"),
    ("Paper cups 250 ml, carton of 1000", "XCT"),
    ("Delivery to Shah Alam", "C62"),
    ("Barista training, two days at the customer's premises", "DAY"),
)
#: Facts that take more room than the least that an invoice needs.
DETAILS = {
    "buyer": buyer(
        name="Aminah binti Salleh",
        email="aminah@example.com",
        address={
            "line1": "5 Jalan Dahlia 7/2",
            "line2": "Taman Bukit Indah",
            "city": "Shah Alam",
            "state": "10",
            "zipCode": "40150",
            "country": "MYS",
        },
    ),
    "currencyCode": "USD",
    "exchangeRate": 4.4512,
    "payment": {"mode": "03", "bankAccount": "512345678901", "terms": "30 days net"},
    "invoiceLevelAllowanceCharge": {"allowances": [{"amount": 10, "reason": "Loyalty"}]},
}
#: The least size of text on paper: 8.5 pt in CSS pixels.
LEAST_SIZE = 8.5 * 96 / 72

SIZES = """() => {
    const sizes = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        if (walker.currentNode.data.trim())
            sizes.push(parseFloat(getComputedStyle(walker.currentNode.parentElement).fontSize));
    }
    return sizes;
}"""


def make_lines(count: int) -> list[dict[str, Any]]:
    """Return lines with several units and rates; every third one has a discount."""
    return [
        line(
            id=str(place + 1),
            description=NAMES[place % 5][0],
            unit={"code": NAMES[place % 5][1], "price": 48.5, "count": 12},
            taxDetails=[{"taxType": "02", "taxRate": {"percentage": (8, 6)[place % 2]}}],
            **({"discount": {"rate": 5, "reason": "Volume"}} if place % 3 == 2 else {}),
        )
        for place in range(count)
    ]


@pytest.fixture
async def page() -> AsyncIterator[Any]:
    async with open_browser() as browser:
        yield await browser.new_page()


async def show_valid_invoice(page: Any, api: Client, **changes: Any) -> None:
    """Create an invoice, submit it until it is Valid, and show its printed page."""
    invoice_id = await create_valid_invoice(api, **changes)
    async with api.get(f"/api/invoices/{invoice_id}/print") as response:
        assert response.status == 200
        await page.set_content(await response.text())
    assert await page.locator(".code svg").count() == 1


async def count_pdf_pages(page: Any) -> int:
    """Return the number of A4 pages on which the page is printed."""
    return len(re.findall(rb"/Type\s*/Page\b", await page.pdf(format="A4")))


@pytest.mark.parametrize("changes", [{}, DETAILS], ids=["plain", "detailed"])
async def test_an_invoice_with_five_lines_is_printed_on_one_page(
    page: Any, api: Client, changes: dict[str, Any]
) -> None:
    await show_valid_invoice(page, api, lineItems=make_lines(5), **changes)
    assert await count_pdf_pages(page) == 1


async def test_an_invoice_with_sixty_lines_is_printed_on_several_pages(
    page: Any, api: Client
) -> None:
    await show_valid_invoice(page, api, lineItems=make_lines(60))
    assert await count_pdf_pages(page) in (3, 4, 5)


async def test_text_on_paper_has_at_least_8_5_points(page: Any, api: Client) -> None:
    await show_valid_invoice(page, api, lineItems=make_lines(3), **DETAILS)
    await page.emulate_media(media="print")
    assert min(await page.evaluate(SIZES)) >= LEAST_SIZE - 0.01


async def test_the_page_fits_a_narrow_screen(page: Any, api: Client) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await show_valid_invoice(page, api, lineItems=make_lines(3), **DETAILS)
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
