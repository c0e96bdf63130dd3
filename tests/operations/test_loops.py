"""The loops of background work: rounds, pauses, errors, and the end."""

import asyncio

import pytest

from service.loops import Loop, wait_for_event
from tests.conftest import until


class Rounds(Loop):
    """A loop whose rounds raise errors or return pauses, in a given order, and then wait."""

    def __init__(self, *results: Exception | float | None, pause: float = 0) -> None:
        super().__init__("rounds", pause, (OSError,))
        self._results = list(results)
        self.resumed = asyncio.Event()
        self.rounds = 0
        self.is_closed = False

    async def work(self) -> float | None:
        self.rounds += 1
        if not self._results:
            await self.resumed.wait()
            return None
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def close(self) -> None:
        self.is_closed = True

    async def reach(self, rounds: int) -> None:
        await until(lambda: asyncio.sleep(0, self.rounds >= rounds))


async def test_a_loop_logs_the_error_of_a_round_and_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Rounds(OSError("away"), ValueError("wrong"), None)
    async with loop.running():
        await loop.reach(4)
    transient, unexpected = caplog.records
    assert (transient.levelname, unexpected.levelname) == ("WARNING", "ERROR")
    assert "rounds: OSError" in transient.message and "\n" not in transient.message
    assert unexpected.message.startswith("rounds: failed\n") and "ValueError" in unexpected.message


async def test_the_beat_of_a_loop_stops_at_unexpected_errors() -> None:
    loop = Rounds(ValueError())
    first = loop.beat
    async with loop.running():
        await loop.reach(2)
        assert loop.beat == first
        loop.resumed.set()
        await loop.reach(3)
        assert loop.beat > first


async def test_an_event_ends_the_pause_of_a_loop() -> None:
    loop = Rounds(3600, None, pause=3600)
    async with loop.running():
        for rounds in (1, 2):
            await loop.reach(rounds)
            loop.woken.set()
        await loop.reach(3)


async def test_a_stopped_loop_ends_after_its_current_round() -> None:
    loop = Rounds()
    async with loop.running():
        await loop.reach(1)
        stopping = asyncio.create_task(loop.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        loop.resumed.set()
        await stopping
        assert loop.rounds == 1


async def test_the_end_of_the_block_cancels_a_round_and_closes_the_loop() -> None:
    loop = Rounds()
    async with loop.running():
        await loop.reach(1)
    assert loop.is_closed and not loop.resumed.is_set()


async def test_waiting_for_an_event_tells_whether_it_was_set() -> None:
    event = asyncio.Event()
    assert not await wait_for_event(event, 0.01)
    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await wait_for_event(event, 3600)
