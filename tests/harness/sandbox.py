"""A client of the sandbox's administration API that retries while the sandbox is down."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import aiohttp

RETRY_SECONDS = 20
TIMEOUT = aiohttp.ClientTimeout(total=5)
#: The form of a login. The header `onbehalfof` names the taxpayer.
LOGIN = {
    "client_id": "sandbox-client",
    "client_secret": "sandbox-secret",
    "grant_type": "client_credentials",
}


async def fetch_token(base: str, tin: str) -> str:
    """Return an access token of a sandbox for a taxpayer."""
    async with (
        aiohttp.ClientSession(base) as session,
        session.post("/connect/token", data=LOGIN, headers={"onbehalfof": tin}) as response,
    ):
        return (await response.json())["access_token"]


class Administration:
    """Orders errors, changes documents, and reads the counts and the ledger of a sandbox."""

    def __init__(self, base: str) -> None:
        self.base = base

    async def settings(self, **members: Any) -> None:
        await self.send("POST", "settings", members)

    async def move_clock(self, seconds: float) -> None:
        await self.send("POST", "clock", {"seconds": seconds})

    async def fault(self, operation: str, kind: str, **members: Any) -> None:
        await self.send("POST", "faults", {"operation": operation, "kind": kind, **members})

    async def waiting(self) -> list[dict[str, Any]]:
        """Return the ordered errors that are not used up."""
        return (await self.send("GET", "faults"))["faults"]

    async def clear(self) -> None:
        """Delete all ordered errors."""
        await self.send("DELETE", "faults")

    async def reject(self, uuid: str, reason: str) -> None:
        """Reject a document as its buyer."""
        await self.send("POST", f"documents/{uuid}/reject", {"reason": reason})

    async def cancel(self, uuid: str, reason: str) -> None:
        """Cancel a document as its issuer, on the portal's own pages."""
        await self.send("POST", f"documents/{uuid}/cancel", {"reason": reason})

    async def show_oddly(self, number: str, **members: Any) -> None:
        """Show the documents of a number with other members; without members, unchanged."""
        await self.send("PUT", "odd-rows", {"number": number, "members": members or None})

    async def ledger(self, **filters: str) -> list[dict[str, Any]]:
        """Return all documents that were ever accepted, in order, by default of every number."""
        return (await self.send("GET", f"ledger?{urlencode(filters)}"))["documents"]

    async def calls(self) -> dict[str, Any]:
        """Return the counts of requests, responses and errors."""
        return await self.send("GET", "calls")

    async def count_calls(self, operation: str) -> int:
        """Return the number of requests for an operation."""
        return (await self.calls())["calls"].get(operation, 0)

    async def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send an administration request and return the JSON of the response.

        Raises RuntimeError if the sandbox refuses it.
        """
        async with (
            asyncio.timeout(RETRY_SECONDS),
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
        ):
            address = f"{self.base}/_sandbox/{path}"
            while True:
                try:
                    async with session.request(method, address, json=body) as response:
                        if response.status >= 300:
                            raise RuntimeError(f"{method} {path}: {await response.text()}")
                        return await response.json()
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.05)
