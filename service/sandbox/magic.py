"""Numbers that force an outcome, for whoever has no access to the administration surface. Portal: Appendix B"""

from .answers import Refusal
from .validators import Finding, wildcard

SLOW_SECONDS = 60
#: prefix of a document's number -> the refusal of the whole submission
REFUSALS = {
    "SIM-500-": (500, "InternalServerError", "The number asked for an internal error.", None),
    "SIM-429-": (
        429,
        "TooManyRequests",
        "The number asked for a throttled call.",
        {"Retry-After": "5"},
    ),
}


def forced_refusal(numbers):
    """Raises Refusal when one of the numbers asks for it."""
    for number in numbers:
        for prefix, (status, code, message, headers) in REFUSALS.items():
            if number.startswith(prefix):
                raise Refusal(status, code, message, headers=headers)


def forced_findings(outer, number):
    if outer == "Error04" and number.startswith("SIM-INVALID-"):
        return [
            Finding(
                "CV302",
                "The number asked for an invalid code.",
                "ID",
                wildcard("ID", "_"),
                "Kod tidak sah.",
            )
        ]
    return []


def forced_delay(number):
    """Seconds of processing beyond the usual ones."""
    return SLOW_SECONDS if number.startswith("SIM-SLOW-") else 0
