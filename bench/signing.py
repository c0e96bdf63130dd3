#!/usr/bin/env python3
"""How long a document takes to build, to encode and to sign, with a key of 2,048 bits. Needs no service.

.venv/bin/python bench/signing.py [--seconds N]
"""

import argparse
import statistics
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from ground import table

from service.commands.demo import BUYER, LINE
from service.commands.serve import DEMO_COMPANY
from service.documents.signing import certificate, signature
from service.documents.ubl import document

LINES = (5, 380, 1000)  # 380 are about what fits into the 300 kB that the portal takes
NOW = datetime.now(UTC)


def main(seconds):
    signer = own_signer()
    rows = []
    for lines in LINES:
        built = document_of(lines)
        steps = {
            "build": partial(document_of, lines),
            "encode": partial(document.encode, built),
            "encode and sign": partial(signature.sign, built, signer, NOW),
        }
        size = len(signature.sign(built, signer, NOW)) / 1000
        for name, step in steps.items():
            times = timed(step, seconds)
            rows.append(
                (f"{lines:,}", name, statistics.median(times), percentile(times, 99), f"{size:.0f}")
            )
    table(
        "One document, milliseconds of one processor",
        ("lines", "step", "p50", "p99", "signed kB"),
        rows,
    )


def timed(step, seconds):
    """Milliseconds that the processor worked for each repetition, the first ones left out."""
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.thread_time()
        step()
        times.append((time.thread_time() - began) * 1000)
    return times[len(times) // 10 :]


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, len(times) * part // 100)]


def document_of(lines):
    price = {"code": "KGM", "price": Decimal("48.50"), "count": 2}
    tax = [{"taxType": "02", "taxRate": {"percentage": 8}}]
    items = [
        {**LINE, "id": f"{number}", "unit": price, "taxDetails": tax} for number in range(lines)
    ]
    source = {"type": "INVOICE", "buyer": BUYER, "lineItems": items}
    return document.build(source, DEMO_COMPANY, number="INV-00001", issued_at=NOW, version="1.1")


def own_signer():
    """A signer with a certificate of its own making."""
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3, help="for each line of the table")
    main(parser.parse_args().seconds)
