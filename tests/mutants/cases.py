"""The mutants of `cases.diff`: small defects, each with a fast test that must fail because of it.

The file has a section for each file of the service, with one mutant after another:

    diff PATH
    @@ NAME
    TEST
     a line that remains, which shows where the defect is
    -a line that the defect removes
    +a line that the defect adds

TEST is an argument of pytest, a single test if possible, so that the whole list takes only minutes.
A mutant that only adds lines adds the file, as a migration with a defect of the schema.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect: `new` replaces the only `old` in `file`, and `test` must fail.

    With an empty `old` the file is added.
    """

    name: str
    file: str
    old: str
    new: str
    test: str


def _read(text: str) -> Iterator[Mutant]:
    for section in re.split(r"^diff ", text, flags=re.MULTILINE)[1:]:
        file, *hunks = re.split(r"^@@ ", section.rstrip("\n"), flags=re.MULTILINE)
        for hunk in hunks:
            name, test, *lines = hunk.splitlines()
            yield Mutant(name, file.strip(), _join(lines, " -"), _join(lines, " +"), test)


def _join(lines: list[str], marks: str) -> str:
    return "".join(f"{line[1:]}\n" for line in lines if line[0] in marks)


MUTANTS = tuple(_read((Path(__file__).parent / "cases.diff").read_text()))
