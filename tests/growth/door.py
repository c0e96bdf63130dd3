"""A door: something that reads bytes from outside, with inputs of any size."""

from dataclasses import dataclass

from tests.growth.judge import Cost

#: Upper limits of sizes in bytes: of a JSON body, of the forms of people with and without a
#: session, and of a line or header of HTTP.
BODY_LIMIT = 2 * 1024 * 1024 - 1024
SESSION_LIMIT = 1024 * 1024 - 1024
PUBLIC_LIMIT = 64 * 1024 - 1024
HEADER_LIMIT = 8_000
#: Of a field of a form, most of whose characters are escaped.
FIELD_LIMIT = 128 * 1024


@dataclass(frozen=True, slots=True)
class Door:
    """A door. `cost` makes an input of a size, and returns the processor time of reading it.

    `limit` is the size up to which inputs are accepted.
    """

    name: str
    cost: Cost
    limit: int
