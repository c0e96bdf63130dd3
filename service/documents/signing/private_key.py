"""Read and check the RSA private keys of signing certificates, from PEM.

The owner of a key chooses how much work it takes to decrypt and to check it. The cryptography
library does that work without releasing the interpreter, so the parameters are checked first.
"""

import base64
import re
from collections.abc import Iterator

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from service.errors import ValidationError, violation

KEY_BITS = (2048, 4096)
#: Limit of the rounds of PBKDF2, some 40 ms; 2,048 to 20,000 are common.
MAX_ROUNDS = 100_000
#: Limit of the nesting of an encrypted key's parameters, which have five levels.
MAX_LEVELS = 8

_PEM = re.compile(
    r"-----BEGIN (?P<kind>|RSA |ENCRYPTED )PRIVATE KEY-----(?P<body>.*?)"
    r"-----END (?P=kind)PRIVATE KEY-----",
    re.DOTALL,
)
_PBKDF2 = bytes.fromhex("2a864886f70d01050c")  # 1.2.840.113549.1.5.12
_INTEGER, _OBJECT, _SEQUENCE = 0x02, 0x06, 0x30


class UnusableCredentials(ValidationError):
    """An unusable certificate, key or password, with its violations."""

    def __str__(self) -> str:
        return " ".join(each["message"] for each in self.more["errors"])


def read_key(pem: str, password: str | None = None) -> rsa.RSAPrivateKey:
    """Return the RSA private key of a PEM text. Raises UnusableCredentials.

    The password is ignored if the key is not encrypted.
    """
    found = _PEM.search(pem)
    if not found:
        raise make_error("/key", "format", "key must be an RSA private key in PEM.")
    encrypted = found["kind"] == "ENCRYPTED " or "ENCRYPTED" in found["body"]
    if encrypted and not password:
        raise make_error("/password", "required", "password is required: the key is encrypted.")
    if found["kind"] == "ENCRYPTED " and not _is_derivation_bounded(found["body"]):
        wording = f"key must be encrypted with PBKDF2 and at most {MAX_ROUNDS} rounds."
        raise make_error("/key", "encryption", wording)
    secret = password.encode() if encrypted and password else None
    try:
        # _is_consistent replaces the validation of the library, which can take minutes.
        key = load_pem_private_key(found[0].encode(), secret, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            wording = "The key cannot be read with this password."
            raise make_error("/password", "password", wording) from None
        raise make_error("/key", "format", "key must be an RSA private key in PEM.") from None
    return _check_key(key)


def find_key_problem(key: object) -> tuple[str, str] | None:
    """Return (rule, rest of a message) if a private or public key cannot be used, or None."""
    low, high = KEY_BITS
    if not isinstance(key, (rsa.RSAPrivateKey, rsa.RSAPublicKey)):
        return "rsa", "must be an RSA key."
    if not low <= key.key_size <= high:
        return "size", f"must have {low} to {high} bits, not {key.key_size}."
    return None


def _check_key(key: PrivateKeyTypes) -> rsa.RSAPrivateKey:
    """Return a usable key. Raises UnusableCredentials: not RSA, a wrong size, or damaged."""
    if problem := find_key_problem(key):
        raise make_error("/key", problem[0], f"key {problem[1]}")
    if not isinstance(key, rsa.RSAPrivateKey) or not (
        _is_consistent(key) and can_sign(key, key.public_key())
    ):
        raise make_error("/key", "format", "key is damaged: its numbers are inconsistent.")
    return key


def _is_consistent(key: rsa.RSAPrivateKey) -> bool:
    """Return whether the numbers of a key fit its modulus, which is the product of its factors.

    Computing with other numbers can take minutes.
    """
    numbers, bits = key.private_numbers(), key.key_size
    modulus = numbers.public_numbers.n
    exponents = (numbers.d, numbers.dmp1, numbers.dmq1, numbers.iqmp, numbers.public_numbers.e)
    factors_fit = max(numbers.p.bit_length(), numbers.q.bit_length()) <= bits // 2 + 8
    exponents_fit = all(0 < each < modulus for each in exponents)
    return factors_fit and exponents_fit and numbers.p * numbers.q == modulus


def sign(key: rsa.RSAPrivateKey, content: bytes) -> bytes:
    """Return the RSA PKCS#1 v1.5 signature of the SHA-256 of the content. Portal: 11.2"""
    return key.sign(content, PKCS1v15(), SHA256())


def can_sign(key: rsa.RSAPrivateKey, public: rsa.RSAPublicKey) -> bool:
    """Return whether a public key verifies a signature of the private key."""
    try:
        public.verify(sign(key, b""), b"", PKCS1v15(), SHA256())
    except (ValueError, InvalidSignature, InternalError):
        return False
    return True


def make_error(path: str, rule: str, message: str) -> UnusableCredentials:
    return UnusableCredentials([violation(path, rule, message)])


def _is_derivation_bounded(body: str) -> bool:
    """Return whether an encrypted key, in base64, uses PBKDF2 with at most MAX_ROUNDS rounds."""
    try:
        parts = list(_parse_der(base64.b64decode("".join(body.split()), validate=True)))
    except (ValueError, IndexError):
        return False
    rounds = [int.from_bytes(content) for tag, content in parts if tag == _INTEGER]
    return (_OBJECT, _PBKDF2) in parts and max(rounds, default=0) <= MAX_ROUNDS


def _parse_der(der: bytes, levels: int = MAX_LEVELS) -> Iterator[tuple[int, bytes]]:
    """Yield (tag, content) of every DER value, also within sequences.

    Raises IndexError if the bytes are truncated.
    """
    while der:
        tag, size, begin = der[0], der[1], 2
        if size & 0x80:
            begin += size & 0x7F
            size = int.from_bytes(der[2:begin])
        content, der = der[begin : begin + size], der[begin + size :]
        if tag == _SEQUENCE and levels:
            yield from _parse_der(content, levels - 1)
        else:
            yield tag, content
