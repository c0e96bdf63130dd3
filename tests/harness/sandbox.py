"""A client of the sandbox's administration API that retries while the sandbox is down."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import aiohttp

RETRY_SECONDS = 20
TIMEOUT = aiohttp.ClientTimeout(total=5)


class Administration:
    """Orders errors and reads the counts and the ledger of a sandbox."""

    def __init__(self, base: str) -> None:
        self._base = f"{base}/_sandbox/"

    async def settings(self, **members: Any) -> dict[str, Any]:
        """Change settings."""
        return await self._send("POST", "settings", members)

    async def fault(self, operation: str, kind: str, **members: Any) -> dict[str, Any]:
        """Order an error."""
        order = {"operation": operation, "kind": kind, **members}
        return await self._send("POST", "faults", order)

    async def waiting(self) -> list[dict[str, Any]]:
        """Return the ordered errors that are not used up."""
        return (await self._send("GET", "faults"))["faults"]

    async def clear(self) -> dict[str, Any]:
        """Delete all ordered errors."""
        return await self._send("DELETE", "faults")

    async def distort(self, number: str, members: dict[str, Any] | None) -> dict[str, Any]:
        """Replace members in the rows of a number. None ends it."""
        return await self._send("PUT", "odd-rows", {"number": number, "members": members})

    async def ledger(self, **filters: str) -> list[dict[str, Any]]:
        """Return all documents that the sandbox ever accepted, by default of every number."""
        return (await self._send("GET", f"ledger?{urlencode(filters)}"))["documents"]

    async def calls(self) -> dict[str, Any]:
        """Return the counts of requests, responses and errors."""
        return await self._send("GET", "calls")

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with (
            asyncio.timeout(RETRY_SECONDS),
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
        ):
            while True:
                try:
                    async with session.request(method, self._base + path, json=body) as response:
                        if response.status >= 300:
                            raise RuntimeError(f"{method} {path}: {await response.text()}")
                        return await response.json()
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.05)
