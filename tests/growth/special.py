"""Shapes of bodies whose texts have a format of their own: certificates, keys, addresses."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from tests.growth.shapes import Make, repeat
from tests.harness.certificates import Issued, issued, rsa_key

#: Characters that the schema allows in a certificate and in a key.
CERTIFICATE_LIMIT, KEY_LIMIT = 20_000, 5_000
#: Characters that the schemas allow in an address.
URL_LIMIT = 2_000


def list_special_shapes() -> Mapping[str, Mapping[str, tuple[Make, int]]]:
    """Return {schema: {shape: (Make, limit)}}."""
    good = issued()
    certificates = {
        name: (_body(good, certificate=make), CERTIFICATE_LIMIT)
        for name, make in (
            ("text before it", lambda size: repeat("-----BEGIN ", size) + good.certificate_pem),
            ("beginnings", lambda size: repeat("-----BEGIN CERTIFICATE-----\n", size)),
            ("many", lambda size: repeat(good.certificate_pem, size)),
            ("names of the subject", _make_long_certificate),
        )
    }
    keys = {
        name: (_body(good, key=make), KEY_LIMIT)
        for name, make in (
            ("beginnings", lambda size: repeat("-----BEGIN PRIVATE KEY-----", size)),
            (
                "beginnings of encrypted",
                lambda size: repeat("-----BEGIN ENCRYPTED PRIVATE KEY-----", size),
            ),
            ("small values", lambda size: _pem("ENCRYPTED ", b"\2\0" * (size * 3 // 8))),
            ("nested sequences", lambda size: _pem("ENCRYPTED ", b"\x30\x80" * (size * 3 // 8))),
            ("large numbers", lambda size: _pem("RSA ", _make_key(size * 3 // 4))),
            ("blanks", lambda size: repeat(" ", size) + good.key_pem),
        )
    }
    named = {f"certificate with {name}": shape for name, shape in certificates.items()}
    named |= {f"key with {name}": shape for name, shape in keys.items()}
    urls = {f"url of {name}": (make, URL_LIMIT) for name, make in _list_urls().items()}
    return {"signing_certificate_update": named, "webhook_create": urls, "webhook_update": urls}


def _body(good: Issued, **members: Callable[[int], str]) -> Make:
    """Return the shape of a body with a certificate and its key, one of which is replaced."""

    def make(size: int) -> bytes:
        changed = {name: text(size) for name, text in members.items()}
        return json.dumps({**good.pair, "password": "a", **changed}).encode()

    return make


def _list_urls() -> dict[str, Make]:
    def body(text: Callable[[int], str]) -> Make:
        return lambda size: json.dumps({"url": text(size)}, ensure_ascii=False).encode()

    return {
        "labels": body(lambda size: f"https://{repeat('a.', size)}example"),
        "other letters": body(lambda size: f"https://{repeat('é', size)}.example/"),
        "punycode": body(lambda size: f"https://xn--{repeat('a', size)}.example/"),
        "escapes": body(lambda size: f"https://a.example/{repeat('%41', size)}"),
        "slashes": body(lambda size: f"https://a.example{repeat('/..', size)}"),
        "user names": body(lambda size: f"https://{repeat('a@', size)}a.example/"),
        "brackets": body(lambda size: f"https://[{repeat('1:', size)}]/"),
        "digits": body(lambda size: f"https://{repeat('1', size)}/"),
    }


def _pem(kind: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{text}\n-----END {kind}PRIVATE KEY-----\n"


def _make_key(size: int) -> bytes:
    """Return an RSA key (PKCS#1) in DER whose numbers fill so many bytes together."""
    number = _der(2, b"\x7f" + b"\xff" * (size // 8))
    return _der(0x30, _der(2, b"\0") + number + _der(2, b"\1\0\1") + number * 6)


def _der(tag: int, content: bytes) -> bytes:
    length = len(content).to_bytes(4)
    return bytes([tag, 0x84]) + length + content


def _make_long_certificate(size: int) -> str:
    """Return a certificate whose subject has many names."""
    key = rsa_key()
    names: list[Any] = [x509.NameAttribute(x509.NameOID.COUNTRY_NAME, "MY")]
    names += [
        x509.NameAttribute(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, f"a,+{number}")
        for number in range(size * 3 // 4 // 20)
    ]
    made = issued().certificate
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(made.issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(made.not_valid_before_utc)
        .not_valid_after(made.not_valid_after_utc)
    )
    return Issued(built.sign(key, hashes.SHA256()), key).certificate_pem
