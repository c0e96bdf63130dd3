"""The version: one place holds it, and everything that names it agrees."""

import re

from service.version import VERSION
from tests.api_requests import request_json
from tests.conftest import AnyClient
from tests.fixtures_service import RunCommand
from tests.harness.paths import ROOT


async def test_command_health_and_description_have_the_version(
    api: AnyClient, command: RunCommand
) -> None:
    printed = await command("--version")
    assert (printed.code, printed.out) == (0, f"{VERSION}\n")
    assert await request_json(api, "GET", "/healthz") == (200, {"status": "ok", "version": VERSION})
    _, description = await request_json(api, "GET", "/api/openapi.json")
    assert description["info"]["version"] == VERSION


def test_the_changelog_describes_the_version() -> None:
    headings = re.findall(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    expected = "Unreleased" if VERSION.endswith("-dev") else VERSION
    assert headings[0] == expected and re.fullmatch(r"\d+\.\d+\.\d+(-dev)?", VERSION)
