"""The check that notices the recovery of a portal that could not be reached."""

from service.loops import Loop
from service.portal.client import Portal


class ContactCheck(Loop):
    """Tries to connect to a portal that could not be reached, until it responds.

    Without it, a process that has nothing to send would report an outage that is over. While the
    portal can be reached it sends nothing.
    """

    def __init__(self, portal: Portal, seconds: float) -> None:
        super().__init__("portal contact", seconds)
        self._portal = portal

    async def work(self) -> None:
        await self._portal.reach_again()
