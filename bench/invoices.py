"""The bodies of invoices that benchmarks create."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

#: Method, path, and body as JSON text.
Request = tuple[str, str, str | None]

BUYER = {
    "type": "LOCAL_INDIVIDUAL",
    "name": "Aminah binti Salleh",
    "registration": {"type": "NRIC", "number": "900101105566"},
    "contactNumber": "+60123456789",
    "address": {
        "line1": "5 Jalan Dahlia",
        "city": "Shah Alam",
        "state": "10",
        "zipCode": "40150",
        "country": "MYS",
    },
}
LINE = {
    "description": "Coffee beans, 1 kg",
    "classifications": ["022"],
    "unit": {"code": "KGM", "price": 48.5, "count": 2},
    "taxDetails": [{"taxType": "02", "taxRate": {"percentage": 8}}],
    "originCountry": "MYS",
}


def create_requests(first: int = 1) -> Iterator[Request]:
    """Yield requests that create invoices with consecutive codes."""
    issued = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "type": "INVOICE",
        "code": 0,
        "issueDateTime": issued,
        "buyer": BUYER,
        "lineItems": [{"id": str(number), **LINE} for number in range(1, 6)],
    }
    text = json.dumps(body)
    for code in itertools.count(first):
        yield "POST", "/api/invoices", text.replace('"code": 0', f'"code": {code}', 1)
