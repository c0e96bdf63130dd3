"""The version: one place holds it, and everything that names it agrees."""

import re
from pathlib import Path

from service.version import VERSION
from tests.api_requests import request_json
from tests.conftest import AnyClient
from tests.fixtures_service import RunCommand
from tests.harness.paths import ROOT
from tests.harness.processes import ChildProcess, Service


async def test_command_health_and_description_have_the_version(
    api: AnyClient, command: RunCommand
) -> None:
    printed = await command("--version")
    assert (printed.code, printed.out) == (0, f"{VERSION}\n")
    assert await request_json(api, "GET", "/healthz") == (200, {"status": "ok", "version": VERSION})
    _, description = await request_json(api, "GET", "/api/openapi.json")
    assert description["info"]["version"] == VERSION


async def test_the_log_of_a_start_begins_with_the_version(
    environment: dict[str, str], tmp_path: Path
) -> None:
    async with Service({**environment, "LOG_LEVEL": "INFO"}, tmp_path / "log") as service:
        assert f" start version={VERSION} command=serve " in service.output().split("\n")[0]


async def test_the_log_of_a_worker_begins_with_the_version(
    environment: dict[str, str], tmp_path: Path
) -> None:
    variables = {**environment, "LOG_LEVEL": "INFO"}
    async with ChildProcess(["worker"], variables, tmp_path / "log") as worker:
        text = await worker.printed("The worker is running.")
    assert f" start version={VERSION} command=worker " in text.split("\n")[0]


def test_the_changelog_describes_the_version() -> None:
    headings = re.findall(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    expected = "Unreleased" if VERSION.endswith("-dev") else VERSION
    assert headings[0] == expected and re.fullmatch(r"\d+\.\d+\.\d+(-dev)?", VERSION)
