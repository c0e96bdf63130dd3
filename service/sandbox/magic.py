"""Document numbers that force an outcome, for clients without access to the administration API.

Portal: Appendix B
"""

from collections.abc import Iterable
from functools import partial

from .answers import refusal

SLOW_SECONDS = 60
#: Prefix of the number of a document with a finding of step 4.
INVALID = "SIM-INVALID-"
#: Prefix of a document number -> what makes the refusal of the submission.
REFUSALS = {
    "SIM-500-": partial(
        refusal, 500, "InternalServerError", "The number asked for an internal error."
    ),
    "SIM-429-": partial(
        refusal,
        429,
        "TooManyRequests",
        "The number asked for a throttled call.",
        headers={"Retry-After": "5"},
    ),
}


def raise_forced_refusal(numbers: Iterable[str]) -> None:
    """Raise Refusal if one of the numbers asks for it."""
    for number in numbers:
        for prefix, make_refusal in REFUSALS.items():
            if number.startswith(prefix):
                raise make_refusal()


def forced_delay(number: str) -> float:
    """Return the additional seconds of processing that a number asks for."""
    return SLOW_SECONDS if number.startswith("SIM-SLOW-") else 0
