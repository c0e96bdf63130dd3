"""Heavy work beside the event loop, so that one large document does not keep every other request waiting."""

import asyncio

# Characters of JSON: what is smaller takes a few milliseconds, which a thread would not spare
LARGE = 50_000


async def offload(size, work, *args):
    """What `work(*args)` gives: in a thread when what it works on is large, else at once."""
    return await asyncio.to_thread(work, *args) if size > LARGE else work(*args)
