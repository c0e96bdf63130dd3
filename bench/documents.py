#!/usr/bin/env python3
"""How much processor time it takes to build, encode and hash a document: of five lines, and of as many as there may be.

    .venv/bin/python bench/documents.py [--rounds N]

No service and no database: what a submission adds before its bytes are stored.
"""

import argparse
import gc
import hashlib
import statistics
import time
from datetime import UTC, datetime
from decimal import Decimal

from ground import table

from service.commands.serve import DEMO_COMPANY
from service.documents.ubl import document

SIZES = {5: 1.0, 1000: 50.0}  # lines -> the aim, in ms
COLUMNS = ("", "median ms", "fastest ms", "aim ms", "KB")
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


def main(options):
    gc.freeze()  # as the service does when it starts
    rows = []
    for size, aim in SIZES.items():
        source = {
            **SOURCE,
            "lineItems": [{**LINE, "id": str(number)} for number in range(1, size + 1)],
        }
        times = sorted(_timed(source) for _ in range(options.rounds))
        rows.append(
            (
                f"{size:,} lines",
                statistics.median(times),
                times[0],
                aim,
                len(_content(source)) // 1000,
            )
        )
    table(f"Build, encode and hash, {options.rounds} rounds", COLUMNS, rows)


def _timed(source):
    start = time.process_time()
    hashlib.sha256(_content(source)).hexdigest()
    return (time.process_time() - start) * 1000


def _content(source):
    issued_at = datetime(2026, 9, 14, 3, 25, 10, tzinfo=UTC)
    return document.encode(
        document.build(source, DEMO_COMPANY, number="INV-00001", issued_at=issued_at)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    main(parser.parse_args())
