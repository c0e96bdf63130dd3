#!/usr/bin/env python3
"""Measure processor time to build, encode and sign a document with a key of 2,048 bits.

    .venv/bin/python bench/signing.py [--seconds N]

Needs no service.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from benchmark import print_table, summary_of
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from service.commands.demo import BUYER, LINE
from service.commands.serve import DEMO_COMPANY
from service.documents.signing import certificate, signature
from service.documents.ubl import document

LINES = (5, 380, 1000)  # 380 lines are about 300 kB, the limit of the portal
NOW = datetime.now(UTC)


def main(seconds: float) -> None:
    """Measure each step for each number of lines and print the table."""
    signer = make_signer()
    rows = []
    for lines in LINES:
        built = build_document(lines)
        steps = {
            "build": partial(build_document, lines),
            "encode": partial(document.encode, built),
            "encode and sign": partial(signature.sign, built, signer, NOW),
        }
        size = len(signature.sign(built, signer, NOW)) / 1000
        for name, step in steps.items():
            times = measure(step, seconds)
            rows.append(
                (f"{lines:,}", name, statistics.median(times), percentile(times, 99), f"{size:.0f}")
            )
    print_table(
        "One document, milliseconds of processor time",
        ("lines", "step", "p50", "p99", "signed kB"),
        rows,
    )


def measure(step: Callable[[], object], seconds: float) -> list[float]:
    """Return the processor time of each repetition in ms, without the first tenth."""
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.thread_time()
        step()
        times.append((time.thread_time() - began) * 1000)
    return times[len(times) // 10 :]


def percentile(times: list[float], part: int) -> float:
    """Return a percentile, which need not be interpolated."""
    return sorted(times)[min(len(times) - 1, len(times) * part // 100)]


def build_document(lines: int) -> dict[str, Any]:
    """Return an invoice with a number of lines."""
    price = {"code": "KGM", "price": Decimal("48.50"), "count": 2}
    tax = [{"taxType": "02", "taxRate": {"percentage": 8}}]
    items = [
        {**LINE, "id": f"{number}", "unit": price, "taxDetails": tax} for number in range(lines)
    ]
    source = {"type": "INVOICE", "buyer": BUYER, "lineItems": items}
    return document.build(source, DEMO_COMPANY, number="INV-00001", issued_at=NOW, version="1.1")


def make_signer() -> certificate.Signer:
    """Return a signer with a new key and a self-signed certificate."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name.from_rfc4514_string(
        "CN=Kopi Tiga Sdn. Bhd.,2.5.4.5=202001234567,2.5.4.97=C20880050010,C=MY"
    )
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), 4711, NOW - timedelta(days=1), NOW + timedelta(days=1)
    )
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return certificate.read_pair(pem, text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--seconds", type=float, default=3, help="of each step and size")
    main(parser.parse_args().seconds)
