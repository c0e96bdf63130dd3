"""Addresses of webhook endpoints: rules for their URLs, and the resolver of their names.

A lookup occupies a thread until the operating system gives up, which can take longer than the
attempt that needs it. The event loop's own threads are few and serve other work too, so each lookup
has a thread of its own, and the number of lookups is limited for each company and for the process:
slow name servers of one company do not delay others' deliveries.
"""

import asyncio
import re
import socket
import threading
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

PORTS = (443, 8443)
#: The only IPv6 range that deliveries may use. It excludes loopback, link-local, unique local,
#: multicast, IPv4-mapped and NAT64 addresses, present and future.
GLOBAL_IPV6 = ip_network("2000::/3")
#: Networks outside the public internet, and networks that hide an embedded IPv4 address.
INTERNAL = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network; Linux treats 0.0.0.0 as loopback
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared addresses of carriers
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, with the metadata services of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
        "2001::/23",  # includes Teredo
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
]
_NAME = re.compile(
    r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?", re.ASCII
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
PROCESS_LOOKUPS = 64
COMPANY_LOOKUPS = 4

Found = list[Any]  # by socket.getaddrinfo

#: The company of the current task's attempt.
company_of_attempt: ContextVar[int | None] = ContextVar("company_of_attempt", default=None)


def url_violation(text: str, allow_internal: bool) -> str | None:
    """Return why a URL is not allowed for an endpoint, or None.

    The addresses of its host are checked at each delivery.
    """
    try:
        url = URL(text)
        host = (url.raw_host or "").lower()
    except ValueError:
        return "url is not a valid URL."
    if url.scheme != "https" and not (allow_internal and url.scheme == "http"):
        return "url must start with https://."
    if url.raw_user is not None or url.raw_password is not None or url.fragment:
        return "url must not contain a user, a password or a fragment."
    if not allow_internal and url.port not in PORTS:
        return f"url must have the port {' or '.join(map(str, PORTS))}."
    return _host_violation(host, allow_internal)


def is_internal(text: str) -> bool:
    """Return whether a resolved address is outside the public internet or cannot be parsed."""
    try:
        address = ip_address(text)
    except ValueError:
        return True
    if isinstance(address, IPv6Address) and (address not in GLOBAL_IPV6 or address.scope_id):
        return True
    return any(address in network for network in INTERNAL)


def _host_violation(host: str, allow_internal: bool) -> str | None:
    if ":" in host or _is_numeric_like(host):
        try:
            address = IPv6Address(host) if ":" in host else IPv4Address(host)
        except ValueError:
            return "url has a numeric host that is not an IP address in its usual form."
        if is_internal(str(address)) and not allow_internal:
            return "url leads to an internal address."
        return None
    if _NAME.fullmatch(host) and len(host) <= 253:
        return None
    return "url has no valid host name."


def _is_numeric_like(host: str) -> bool:
    """Return whether a resolver may parse the host as a number, by its last label."""
    return bool(_NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]))


class Resolver(AbstractResolver):
    """Resolves names with the operating system, at most COMPANY_LOOKUPS at once for each company.

    `timeout` limits the wait for one lookup, in seconds.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._running: Counter[int | None] = Counter()  # company -> threads
        self._ended = asyncio.Event()  # set when a thread has ended

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises OSError, such as TimeoutError and gaierror."""
        look = partial(
            socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        async with asyncio.timeout(self._timeout):
            found = await self._look_up(company_of_attempt.get(), look)
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for family, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Do nothing: threads that still wait for a name server do not block the exit."""

    async def _look_up(self, company: int | None, look: partial[Found]) -> Found:
        """Run a lookup in a thread, which counts until it ends, even after a timeout."""
        while self._running[company] >= COMPANY_LOOKUPS or self._running.total() >= PROCESS_LOOKUPS:
            self._ended.clear()
            await self._ended.wait()
        self._running[company] += 1
        lookup = _in_thread(look)
        lookup.add_done_callback(partial(self._end, company))
        return await asyncio.shield(lookup)

    def _end(self, company: int | None, lookup: asyncio.Future[Found]) -> None:
        lookup.exception()  # mark it as retrieved; the caller may have timed out
        self._running[company] -= 1
        if not self._running[company]:
            del self._running[company]
        self._ended.set()


def _in_thread(work: partial[Found]) -> asyncio.Future[Found]:
    """Start `work` in a daemon thread and return the future of its result."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def run() -> None:
        try:
            finish = partial(future.set_result, work())
        except Exception as error:
            finish = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish)

    threading.Thread(target=run, name="webhook-lookup", daemon=True).start()
    return future
