"""Format SQL files: lower case, one space between words, no space at the end of a line.

Indentation is kept. Columns of a table are not aligned, so that a new name moves no other line.
Strings, quoted names and comments are not changed. The generated sql/schema.sql stays as it is.

    python .ci/format_sql.py            # format the files
    python .ci/format_sql.py --check    # print the files that are not formatted; exits with 1

Both exit with 1 if a line is longer than LONGEST_LINE.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_LINE = 100  # characters
PART = re.compile(
    r"(?P<kept>'(?:[^']|'')*'|\"[^\"]*\")"
    r"|(?P<end>[ \t]*\n)"
    r"|(?P<comment>[ \t]*--[^\n]*)"
    r"|(?P<space>[ \t]+)"
    r"|(?P<code>[^'\"\s-]+|-)"
)


def format_sql(source: str) -> str:
    """Return the text of an SQL file in the project's format."""
    return "".join(_format_parts(source)).rstrip("\n") + "\n"


def _format_parts(source: str) -> Iterator[str]:
    is_first = True
    for part in PART.finditer(source):
        yield _format_part(part, is_first)
        is_first = part.lastgroup == "end"


def _format_part(part: re.Match[str], is_first: bool) -> str:
    text = part[0]
    if part.lastgroup == "end":
        return "\n"
    if part.lastgroup == "comment":
        return text.rstrip() if is_first else f"  {text.strip()}"
    if part.lastgroup == "space":
        return text if is_first else " "
    return text.lower() if part.lastgroup == "code" else text


def main() -> int:
    """Format or check all files. Return the exit code."""
    failures: list[str] = []
    is_check = "--check" in sys.argv[1:]
    for folder in ("sql", "service"):
        for path in sorted(set((ROOT / folder).rglob("*.sql")) - {ROOT / "sql" / "schema.sql"}):
            name, source = path.relative_to(ROOT), path.read_text("utf-8")
            formatted = format_sql(source)
            if is_check and formatted != source:
                failures.append(f"{name} is not formatted. Run make format.")
            elif formatted != source:
                path.write_text(formatted, "utf-8")
            for number, line in enumerate(formatted.split("\n"), 1):
                if len(line) > LONGEST_LINE:
                    failures.append(f"{name}:{number}: {len(line)} characters")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
