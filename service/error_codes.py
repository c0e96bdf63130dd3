"""The table of the codes in error bodies, with what a client can do about each."""

from typing import NamedTuple

from service import json_codec


class ErrorCode(NamedTuple):
    """A row of the table of codes: the statuses of its responses, its meaning, and the remedy."""

    status: str
    meaning: str
    remedy: str


#: Every `code` of an error body. docs/errors.md is generated from it. The codes of a cancellation
#: that the authority refuses are the authority's own.
CODES = {code: ErrorCode(**row) for code, row in json_codec.load_data(__file__).items()}
