"""The table of the codes in error bodies, with what a client can do about each."""

import csv
from pathlib import Path
from typing import NamedTuple


class ErrorCode(NamedTuple):
    """A row of the table of codes: the statuses of its responses, its meaning, and the remedy."""

    status: str
    meaning: str
    remedy: str


_HEAD, *_ROWS = csv.reader(Path(__file__).with_suffix(".csv").read_text("utf-8").splitlines())
#: Every `code` of an error body. docs/errors.md is generated from it. The codes of a cancellation
#: that the authority refuses are the authority's own.
CODES = {code: ErrorCode(*row) for code, *row in _ROWS}
