"""The queries of sql/inspect/, with values for their variables."""

import re
from pathlib import Path

from tests.harness.paths import ROOT

FOLDER = ROOT / "sql" / "inspect"
INSPECTIONS = sorted(FOLDER.glob("*.sql"))
#: Values of the variables that the files have.
VALUES = {"company_id": "1", "number": "INV-00001", "month": "2026-11"}
_VARIABLE = re.compile(r"(?<!:):(?P<quote>'?)(?P<name>[a-z_]+)\b(?P=quote)")


def fill_inspection(path: Path, **values: object) -> str:
    """Return the text of a file with values in place of its variables, as psql writes them."""
    known = {**VALUES, **values}
    code = re.sub(r"^--.*\n", "", path.read_text(), flags=re.MULTILINE)
    return _VARIABLE.sub(
        lambda found: f"{found['quote']}{known[found['name']]}{found['quote']}", code
    )
