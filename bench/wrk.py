"""Generate load with wrk: one thread, several connections, a script in Lua."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

from programs import ProgramError, run_program

SCRIPT = Path(__file__).resolve().parent / "peers" / "wrk" / "load.lua"
TIMEOUT_SECONDS = 10  # of one request
EXTRA_SECONDS = 30  # for the start and end of wrk
CREATE = "create"
#: The first codes of ranges, each for one run. All codes have 12 digits.
CODES = itertools.count(10**11, 10**8)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to one server.

    Each line of the file `companies` is the company of one request, which starts again after the
    last line: a key, and the first and the last id of invoices. `request` has the further arguments
    of load.lua, but for the codes of creates.
    """

    base: str
    companies: Path
    request: tuple[str, ...]
    connections: int


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The requests that were answered, and the percentiles of their latency in milliseconds."""

    requests: int
    seconds: float
    p50: float
    p99: float


async def run_wrk(load: Load, seconds: float) -> LoadResult:
    """Send requests for some seconds. Raises ProgramError if a response was not a success."""
    command = [
        "wrk",
        "--threads=1",
        f"--connections={load.connections}",
        f"--duration={max(1, round(seconds))}s",
        f"--timeout={TIMEOUT_SECONDS}s",
        "--latency",
        f"--script={SCRIPT}",
        load.base,
        "--",
        str(load.companies),
        *load.request,
        *([str(next(CODES))] if load.request[0] == CREATE else []),
    ]
    output = await run_program(command, seconds + EXTRA_SECONDS)
    line = next((line for line in output.splitlines() if line.startswith("RESULT ")), "")
    if not line:
        raise ProgramError(f"wrk printed no result:\n{output[-2000:]}")
    result = json.loads(line.removeprefix("RESULT "))
    failed = {name: result[name] for name in ("statuses", "sockets", "timeouts") if result[name]}
    if failed or not result["requests"]:
        raise ProgramError(
            f"{load.base} {' '.join(load.request)}: {result['requests']} requests, "
            f"failures: {failed}"
        )
    return LoadResult(result["requests"], result["seconds"], result["p50"], result["p99"])
