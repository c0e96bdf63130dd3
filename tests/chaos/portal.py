"""The sandbox's administration, which is asked again while the sandbox itself is down."""

import asyncio

import aiohttp

SECONDS = 20
PATIENCE = aiohttp.ClientTimeout(total=5)


class Administration:
    """Orders faults and reads what the sandbox did."""

    def __init__(self, base):
        self._base = f"{base}/_sandbox/"

    async def settings(self, **members):
        return await self._ask("POST", "settings", members)

    async def fault(self, operation, kind, **members):
        return await self._ask("POST", "faults", {"operation": operation, "kind": kind, **members})

    async def waiting(self):
        """The faults that have met no call yet."""
        return (await self._ask("GET", "faults"))["faults"]

    async def clear(self):
        return await self._ask("DELETE", "faults")

    async def distort(self, number, members):
        """Show the documents of a number with other members, or as they are when `members` is None."""
        return await self._ask("PUT", "odd-rows", {"number": number, "members": members})

    async def ledger(self):
        return (await self._ask("GET", "ledger"))["documents"]

    async def calls(self):
        return await self._ask("GET", "calls")

    async def _ask(self, method, path, body=None):
        async with asyncio.timeout(SECONDS), aiohttp.ClientSession(timeout=PATIENCE) as session:
            while True:
                try:
                    async with session.request(method, self._base + path, json=body) as response:
                        if response.status >= 300:
                            raise RuntimeError(f"{method} {path}: {await response.text()}")
                        return await response.json()
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.05)
