#!/usr/bin/env python3
"""Measure processor time to build, encode and hash a document of 5 and of 1,000 lines.

    .venv/bin/python bench/documents.py [--rounds N]

Needs neither service nor database. This is the work of a submission before its bytes are stored.
"""

import argparse
import gc
import hashlib
import statistics
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from benchmark import print_table, summary_of

from service.commands.serve import DEMO_COMPANY
from service.documents.ubl import document

SIZES = {5: 1.0, 1000: 50.0}  # lines -> target in ms
COLUMNS = ("", "median ms", "fastest ms", "target ms", "KB")
LINE = {
    "description": "Coffee beans, 1 kg",
    "classifications": ["022"],
    "unit": {"code": "KGM", "price": Decimal("48.50"), "count": Decimal("2.5")},
    "discount": {"rate": 5, "reason": "Regular customer"},
    "taxDetails": [{"taxType": "02", "taxRate": {"percentage": 8}}],
    "originCountry": "MYS",
}
SOURCE = {
    "type": "INVOICE",
    "buyer": {
        "type": "LOCAL_INDIVIDUAL",
        "name": "Aminah binti Salleh",
        "registration": {"type": "NRIC", "number": "900101105566"},
        "contactNumber": "012-345 6789",
        "address": {
            "line1": "5 Jalan Dahlia",
            "city": "Shah Alam",
            "state": "10",
            "zipCode": "40150",
            "country": "MYS",
        },
    },
}


def main(rounds: int) -> None:
    """Measure each size and print the table."""
    gc.freeze()  # as the service does when it starts
    rows = []
    for size, target in SIZES.items():
        items = [{**LINE, "id": str(number)} for number in range(1, size + 1)]
        source = {**SOURCE, "lineItems": items}
        times = sorted(_measure(source) for _ in range(rounds))
        kilobytes = len(_encode(source)) // 1000
        rows.append((f"{size:,} lines", statistics.median(times), times[0], target, kilobytes))
    print_table(f"Build, encode and hash, {rounds} rounds", COLUMNS, rows)


def _measure(source: dict[str, Any]) -> float:
    """Return the processor time in ms."""
    start = time.process_time()
    hashlib.sha256(_encode(source)).hexdigest()
    return (time.process_time() - start) * 1000


def _encode(source: dict[str, Any]) -> bytes:
    issued_at = datetime(2026, 9, 14, 3, 25, 10, tzinfo=UTC)
    return document.encode(
        document.build(source, DEMO_COMPANY, number="INV-00001", issued_at=issued_at)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--rounds", type=int, default=50)
    main(parser.parse_args().rounds)
