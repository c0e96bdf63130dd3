"""Writes the pages of docs/ that the code describes: settings, commands and codes of errors.

    python .ci/write_docs.py            # write the pages
    python .ci/write_docs.py --check    # print what is missing in them; exits with 1

It runs in the root of the project with PYTHONPATH=.
"""

import argparse
import re
import sys
from pathlib import Path

from service.commands.main import create_command_line
from service.config import ROOT, SETTINGS
from service.errors import CODES


def main() -> int:
    """Write or check the pages. Return the exit code."""
    failures: list[str] = []
    for path, text in _make_pages().items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text, "utf-8")
        elif path.read_text("utf-8") != text:
            failures.append(f"{path.name} is out of date. Run make docs.")
        elif "|  |\n" in text:
            failures.append(f"A row of {path.name} has no description. Add it there.")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def _make_pages() -> dict[Path, str]:
    folder = ROOT / "docs"
    configuration = folder / "configuration.md"
    tables = {
        configuration: _setting_cells(configuration),
        folder / "commands.md": _command_cells(),
        folder / "errors.md": [(_code(code), *known.values()) for code, known in CODES.items()],
    }
    return {path: _head_of(path) + _rows(cells) for path, cells in tables.items()}


def _head_of(page: Path) -> str:
    """Return the text of a page up to the rows of its table, which is written by hand."""
    text = page.read_text("utf-8")
    return text[: text.index("---|\n") + 5]


def _setting_cells(page: Path) -> list[tuple[str, ...]]:
    """Return the cells of settings, with the descriptions that the page has."""
    written = re.findall(r"^\| `(\w+)`.* \| (.*) \|$", page.read_text("utf-8"), re.MULTILINE)
    descriptions = {name: text.replace("\\|", "|") for name, text in written}
    rows = []
    for setting in SETTINGS.values():
        default = _code(setting.default.removeprefix(f"{ROOT}/"))
        name = _code(setting.variable)
        name += f" (`{setting.file_variable}`)" if setting.parser.is_secret else ""
        rows.append((name, default, setting.parser.allowed, descriptions.get(setting.variable, "")))
    return rows


def _command_cells() -> list[tuple[str, ...]]:
    return [
        (_code(name), _code(_arguments(parser)), parser.description or "")
        for name, parser in create_command_line().commands.choices.items()
    ]


def _arguments(parser: argparse.ArgumentParser) -> str:
    """Return the arguments of a command as its usage shows them."""
    usage = re.sub(r"\s+", " ", parser.format_usage()).strip()
    return usage.removeprefix(f"usage: {parser.prog}").replace("[-h]", "").strip()


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _rows(rows: list[tuple[str, ...]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


if __name__ == "__main__":
    sys.exit(main())
