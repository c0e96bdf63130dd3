"""A private key to sign with, read from PEM. Pure functions.

Whoever makes a key chooses how much work it is to open and to try, so that is looked at before it is done: the library
works on a key without letting anything else of the process run.
"""

import base64
import re

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from service.errors import violation

KEY_BITS = (2048, 4096)
# Of the derivation of a key from a password, some 40 ms; usual are 2,048 to 20,000
MOST_ROUNDS = 100_000
MOST_LEVELS = 8  # of the description of how a key is encrypted; five are used

_PEM = re.compile(
    r"-----BEGIN (?P<kind>|RSA |ENCRYPTED )PRIVATE KEY-----(?P<body>.*?)-----END (?P=kind)PRIVATE KEY-----",
    re.DOTALL,
)
_PBKDF2 = bytes.fromhex("2a864886f70d01050c")  # 1.2.840.113549.1.5.12
_INTEGER, _OBJECT, _SEQUENCE = 0x02, 0x06, 0x30


class Unusable(Exception):
    """What is wrong with a certificate, a key or a password: `faults` are {path, rule, message}."""

    def __init__(self, faults):
        super().__init__(" ".join(each["message"] for each in faults))
        self.faults = faults


def read_key(pem, password=None):
    """The RSA private key of a PEM text; the password, a text, is used where the key needs one. Raises Unusable."""
    found = _PEM.search(pem)
    if not found:
        raise _unusable("/key", "format", "key must be an RSA private key in PEM.")
    encrypted = found["kind"] == "ENCRYPTED " or "ENCRYPTED" in found["body"]
    if encrypted and not password:
        raise _unusable("/password", "required", "password is required: the key is encrypted.")
    if found["kind"] == "ENCRYPTED " and not _opens_in_time(found["body"]):
        raise _unusable(
            "/key",
            "encryption",
            f"key must be encrypted with PBKDF2 of at most {MOST_ROUNDS} rounds.",
        )
    try:
        given = password.encode() if encrypted else None
        # See _signs
        key = load_pem_private_key(found[0].encode(), given, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise _unusable(
                "/password", "password", "The key cannot be read with this password."
            ) from None
        raise _unusable("/key", "format", "key must be an RSA private key in PEM.") from None
    return _fit(key)


def misfit(key):
    """What keeps a key, private or public, from being signed with, or None: (rule, the rest of a sentence)."""
    low, high = KEY_BITS
    if not isinstance(key, (rsa.RSAPrivateKey, rsa.RSAPublicKey)):
        return "rsa", "must be of RSA."
    if not low <= key.key_size <= high:
        return "size", f"must have from {low} to {high} bits, not {key.key_size}."
    return None


def _fit(key):
    if why := misfit(key):
        raise _unusable("/key", why[0], f"key {why[1]}")
    if not (_is_in_proportion(key) and _signs(key)):
        raise _unusable("/key", "format", "key is damaged: its numbers do not belong together.")
    return key


def _is_in_proportion(key):
    """Whether its numbers are of the sizes that its modulus gives them; others could take minutes to work with."""
    numbers, bits = key.private_numbers(), key.key_size
    modulus, exponents = (
        numbers.public_numbers.n,
        (numbers.d, numbers.dmp1, numbers.dmq1, numbers.iqmp),
    )
    factors_fit = max(numbers.p.bit_length(), numbers.q.bit_length()) <= bits // 2 + 8
    exponents_fit = all(0 < each < modulus for each in (*exponents, numbers.public_numbers.e))
    return factors_fit and exponents_fit and numbers.p * numbers.q == modulus


def _signs(key):
    """Whether what it signs can be verified with its public half."""
    try:
        signature = key.sign(b"", PKCS1v15(), SHA256())
        key.public_key().verify(signature, b"", PKCS1v15(), SHA256())
    except (ValueError, InvalidSignature, InternalError):
        return False
    return True


def _unusable(path, rule, message):
    return Unusable([violation(path, rule, message)])


def _opens_in_time(body):
    """Whether an encrypted key, in base64, says that its password is derived by PBKDF2 in a bounded number of rounds."""
    try:
        parts = list(_parts(base64.b64decode("".join(body.split()), validate=True)))
    except (ValueError, IndexError):
        return False
    rounds = [int.from_bytes(content) for tag, content in parts if tag == _INTEGER]
    return (_OBJECT, _PBKDF2) in parts and max(rounds, default=0) <= MOST_ROUNDS


def _parts(der, levels=MOST_LEVELS):
    """(tag, content) of every DER value, those within sequences too. Raises IndexError where it is cut short."""
    while der:
        tag, size, begin = der[0], der[1], 2
        if size & 0x80:
            begin += size & 0x7F
            size = int.from_bytes(der[2:begin])
        content, der = der[begin : begin + size], der[begin + size :]
        if tag == _SEQUENCE and levels:
            yield from _parts(content, levels - 1)
        else:
            yield tag, content
