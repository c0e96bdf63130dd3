"""A browser for tests: Debian's Chromium, driven by playwright."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

#: Skips tests where there is no browser.
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: install the Debian package chromium"
)


@asynccontextmanager
async def open_browser() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as programs:
        browser = await programs.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        await browser.close()
