"""The generated pages of the documentation."""

import argparse
import re
from pathlib import Path

from service.commands.command_line import CommandLine
from service.config import ROOT, SETTINGS
from service.error_codes import CODES

CONFIGURATION = """\
# Configuration

Configuration is read from environment variables at startup. All invalid variables are reported
together. Times are in seconds and may have decimals. A secret can be in a file, for which the
variable in brackets has the path. `SANDBOX_…` variables of a sandbox that runs alone are in
[Sandbox](sandbox.md#starting-it). `make docs` generates this page from `service/config.py`, except
for the descriptions, which are written here.

| Name | Default | Allowed values | Description |
|---|---|---|---|
"""
COMMANDS = """\
# Commands

Run `.venv/bin/python run.py COMMAND`, or `make run ARGS="COMMAND …"`. `--help` describes the
arguments. Commands use the database of the service, including the embedded one while the service
runs, and find its ports in `DATA_DIR`. Errors are printed in words, with exit code 1. `make docs`
generates this page from `service/commands/`.

The first process that uses the embedded PostgreSQL starts it, and the last one stops it. After a
`kill -9` of the last one it runs on; the next start replaces it, and nothing is lost. As root it
runs as another user, by `setpriv` of util-linux.

| Name | Arguments | Description |
|---|---|---|
"""
ERRORS = """\
# Error codes

An error body has a `code`, which does not change, and a `message` for people. A 401 has only the
message. A cancellation that the tax authority refuses has the authority's own code, such as
`OperationPeriodOver`. A create or update that also submits succeeds in any case: there, `data.code`
says why the submission failed, or what it waits for. [API](api.md#errors) describes the bodies.
`make docs` generates this page from `service/error_codes.py`.

| Code | Status | Meaning | What to do |
|---|---|---|---|
"""


def register(line: CommandLine) -> None:
    """Add the command."""

    def write() -> None:
        for path, text in pages(line).items():
            path.write_text(text)

    line.add(
        "docs", write, "Generate `docs/configuration.md`, `docs/commands.md` and `docs/errors.md`."
    )


def pages(line: CommandLine) -> dict[Path, str]:
    """Return the generated pages by their path."""
    folder = ROOT / "docs"
    return {
        folder / "configuration.md": CONFIGURATION
        + _rows(_setting_cells(folder / "configuration.md")),
        folder / "commands.md": COMMANDS + _rows(_command_cells(line)),
        folder / "errors.md": ERRORS + _rows(_error_cells()),
    }


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


def _command_cells(line: CommandLine) -> list[tuple[str, ...]]:
    return [
        (_code(name), _code(_arguments(parser)), parser.description or "")
        for name, parser in line.by_name.items()
    ]


def _error_cells() -> list[tuple[str, ...]]:
    return [(_code(code), *known) for code, known in CODES.items()]


def _arguments(parser: argparse.ArgumentParser) -> str:
    """Return the arguments of a command as its usage shows them."""
    usage = re.sub(r"\s+", " ", parser.format_usage()).strip()
    return usage.removeprefix(f"usage: {parser.prog}").replace("[-h]", "").strip()


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _rows(rows: list[tuple[str, ...]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)
