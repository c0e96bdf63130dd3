"""Document numbers that force an outcome, for clients without access to the administration API.

Portal: Appendix B
"""

from collections.abc import Iterable

from .answers import refusal

#: Prefix of the number of a document with a finding of step 4.
INVALID = "SIM-INVALID-"


def raise_forced_refusal(numbers: Iterable[str]) -> None:
    """Raise Refusal if one of the numbers asks for it."""
    for number in numbers:
        if number.startswith("SIM-500-"):
            raise refusal(500, "InternalServerError", "The number asked for an internal error.")
        if number.startswith("SIM-429-"):
            message = "The number asked for a throttled call."
            raise refusal(429, "TooManyRequests", message, headers={"Retry-After": "5"})


def forced_delay(number: str) -> float:
    """Return the additional seconds of processing that a number asks for."""
    return 60 if number.startswith("SIM-SLOW-") else 0
