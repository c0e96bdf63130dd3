"""The generated pages of the documentation."""

from service.config import ROOT, SETTINGS

CONFIGURATION = ROOT / "docs" / "configuration.md"

CONFIGURATION_HEAD = """\
# Configuration

Configuration is read from environment variables at startup. All invalid variables are reported \
together. Times are in seconds and may have decimals. `SANDBOX_…` variables of a sandbox that runs \
alone are in [Sandbox](sandbox.md#starting-it). `make docs` generates this page from \
`service/config.py`.

| Name | Default | Allowed values | Description |
|---|---|---|---|
"""


def configuration_page() -> str:
    """Return the page that lists all settings."""
    rows = []
    for setting in SETTINGS.values():
        default = setting.default.removeprefix(f"{ROOT}/")
        cells = (
            f"`{setting.variable}`",
            f"`{default}`" if default else "",
            setting.parser.allowed,
            setting.description,
        )
        rows.append(f"| {' | '.join(cells)} |\n")
    return CONFIGURATION_HEAD + "".join(rows)
