"""Passwords: argon2id hashes, and the rules for new ones.

The rules are those of NIST SP 800-63B: a least length and a list of common passwords, no rules
about kinds of characters.
"""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from service.offload import run_in_thread

LEAST_CHARACTERS, MOST_CHARACTERS = 12, 128
#: A name, or a word of one, that is at least this long must not be most of a password.
WORD_CHARACTERS = 4

COMMON = frozenset(Path(__file__).with_name("common_passwords.txt").read_text("utf-8").split())
#: Rows of a keyboard and other sequences; a password must not be a part of one.
SEQUENCES = (
    "01234567890123456789",
    "98765432109876543210",
    "abcdefghijklmnopqrstuvwxyz",
    "zyxwvutsrqponmlkjihgfedcba",
    "qwertyuiopasdfghjklzxcvbnm",
)


class Passwords:
    """Hashes and checks passwords in a thread. Each takes 19 MiB of memory and some 30 ms."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
        #: Compared with if there is no hash, so that both cases take equal time.
        self._unknown = self._hasher.hash("")

    async def hash(self, password: str) -> str:
        """Return the hash of a password without weakness, with its salt and parameters."""
        return await run_in_thread(self._hasher.hash, _normalise(password))

    async def matches(self, password: str, digest: str | None) -> bool:
        """Return whether a password has this hash. Without a hash it does not match."""
        is_right = await run_in_thread(self._verify, password, digest or self._unknown)
        return is_right and digest is not None

    def is_outdated(self, digest: str) -> bool:
        """Return whether a hash was made with other parameters."""
        return self._hasher.check_needs_rehash(digest)

    def _verify(self, password: str, digest: str) -> bool:
        try:
            return self._hasher.verify(digest, _normalise(password)) and not _is_long(password)
        except (VerificationError, InvalidHashError):
            return False


def find_weakness(password: str, names: Iterable[str] = ()) -> str | None:
    """Return the key of the text that says why a new password is refused, or None.

    `names` are the person's name and email address and the names of the person's companies.
    """
    text = _normalise(password)
    if _is_long(password) or _is_long(text):
        return "too_long"
    if len(text) < LEAST_CHARACTERS:
        return "too_short"
    folded = text.casefold()
    if folded in COMMON or len(set(folded)) < 4 or any(folded in each for each in SEQUENCES):
        return "common"
    rest = folded
    for word in sorted({word for name in names for word in _split_name(name)}, key=len)[::-1]:
        # Spaces and punctuation in the word make no difference.
        rest = re.sub(r"[\W_]*".join(word), "", rest)
    if len(rest) < LEAST_CHARACTERS // 2:
        return "about_you"
    return None


def _split_name(name: str) -> Iterable[str]:
    """Return a name, and the local part of an email address, as one word and in words."""
    folded = "".join(
        char if char.isalnum() else "@" if char == "@" else " "
        for char in _normalise(name).casefold()
    )
    local = folded.partition("@")[0]
    joined = ("".join(text.replace("@", " ").split()) for text in (folded, local))
    words = {*joined, *folded.replace("@", " ").split()}
    return (word for word in words if len(word) >= WORD_CHARACTERS)


def _is_long(text: str) -> bool:
    return len(text) > MOST_CHARACTERS


def _normalise(password: str) -> str:
    """Return the text in one form, since keyboards write some characters in several.

    A longer text is cut before: the time of NFKC grows with its square.
    """
    return unicodedata.normalize("NFKC", password[:MOST_CHARACTERS])
