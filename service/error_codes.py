"""The table of the codes in error bodies, with what a client can do about each."""

import csv
from pathlib import Path

_TABLE = Path(__file__).with_suffix(".csv").read_text("utf-8").splitlines()
#: Every `code` of an error body -> {status, meaning, remedy}, of which `status` has all statuses.
#: docs/errors.md is generated from it. The codes of a cancellation that the authority refuses are
#: the authority's own.
CODES = {row.pop("code"): row for row in csv.DictReader(_TABLE)}
