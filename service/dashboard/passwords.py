"""Passwords: argon2id hashes, and the rules for new ones.

The rules are those of NIST SP 800-63B: a least length and no passwords that are easy to guess, no
rules about kinds of characters.
"""

import re
import unicodedata
from collections.abc import Iterable

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from zxcvbn import zxcvbn

from service.offload import run_in_thread

LEAST_CHARACTERS, MOST_CHARACTERS = 12, 128
#: A name, or a word of one, that is at least this long must not be most of a password.
WORD_CHARACTERS = 4

#: zxcvbn's score from 0 to 4; with 3 a password withstands some hundred million guesses.
LEAST_SCORE = 3
JUDGED_CHARACTERS = 72
#: Signs that zxcvbn also reads as letters, in all combinations: all of them take seconds, ten at
#: most half of one. Ten are enough for numbers.
LETTER_SIGNS = "4@8({[<3691!|70$5+%2"
MOST_SIGNS = 10

#: Compared with if there is no hash, so that both cases take equal time. It has the parameters of
#: new hashes, and no password has it.
UNKNOWN = f"$argon2id$v=19$m=19456,t=2,p=1${'A' * 22}${'A' * 43}"


#: Makes and checks hashes. Each takes 19 MiB of memory and some 30 ms.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


async def hash_password(password: str) -> str:
    """Return the hash of a password without weakness, with its salt and parameters."""
    return await run_in_thread(_HASHER.hash, _normalise(password))


async def matches_hash(password: str, digest: str | None) -> bool:
    """Return whether a password has this hash. Without a hash it does not match."""
    is_right = await run_in_thread(_verify, password, digest or UNKNOWN)
    return is_right and digest is not None


def _verify(password: str, digest: str) -> bool:
    try:
        return _HASHER.verify(digest, _normalise(password)) and not _is_long(password)
    except (VerificationError, InvalidHashError):
        return False


def find_weakness(password: str, names: Iterable[str] = ()) -> str | None:
    """Return the key of the text that says why a new password is refused, or None.

    `names` are the person's name and email address and the names of the person's companies.
    It can take half a second, so call it in the thread.
    """
    text = _normalise(password)
    if _is_long(password) or _is_long(text):
        return "too_long"
    if len(text) < LEAST_CHARACTERS:
        return "too_short"
    words = {word for name in names for word in _split_name(name)}
    rest = text.casefold()
    for word in sorted(words, key=len, reverse=True):
        # What is left must be enough. Spaces and punctuation in the word make no difference.
        rest = re.sub(r"[\W_]*".join(word), "", rest)
    if rest == text.casefold():
        return None if _is_hard(rest, words) else "common"
    return None if _is_hard(re.sub(r"[\W_]", "", rest), words) else "about_you"


def _is_hard(text: str, words: Iterable[str]) -> bool:
    """Return whether a text is hard to guess for someone who tries these words first."""
    # zxcvbn cannot judge an empty text.
    return bool(text) and zxcvbn(_limit(text), words)["score"] >= LEAST_SCORE


def _limit(text: str) -> str:
    """Return as much of a text as zxcvbn judges in bounded time."""
    signs = [char for char in dict.fromkeys(text) if char in LETTER_SIGNS]
    return text.translate({ord(sign): "" for sign in signs[MOST_SIGNS:]})[:JUDGED_CHARACTERS]


def _split_name(name: str) -> Iterable[str]:
    """Return a name, and the local part of an email address, as one word and in words."""
    folded = _normalise(name).casefold()
    joined = (re.sub(r"[\W_]", "", text) for text in (folded, folded.partition("@")[0]))
    words = {*joined, *re.split(r"[\W_]", folded)}
    return (word for word in words if len(word) >= WORD_CHARACTERS)


def _is_long(text: str) -> bool:
    return len(text) > MOST_CHARACTERS


def _normalise(password: str) -> str:
    """Return the text in one form, since keyboards write some characters in several.

    A longer text is cut before: the time of NFKC grows with its square.
    """
    return unicodedata.normalize("NFKC", password[:MOST_CHARACTERS])
