"""The bodies of invoices that benchmarks create."""

from typing import Any

from tests.harness.bodies import example, line, now


def make_invoice(code: int, lines: int = 5) -> dict[str, Any]:
    """Return the body of an invoice with a number of equal lines."""
    items = [line(id=str(number)) for number in range(1, lines + 1)]
    return {**example("invoice_create"), "code": code, "issueDateTime": now(), "lineItems": items}
