"""The address of a client, also behind reverse proxies."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from aiohttp import web

from service.config import Network
from service.http.requests import header

Address = IPv4Address | IPv6Address

KEPT = 1024  # addresses whose result is kept, since to parse one takes microseconds
LONGEST_KEPT = 100  # characters of a header


class Sender(NamedTuple):
    """The client of a request: its address as text, and what identifies it in limits.

    The latter is an IPv4 address, or the /64 network of an IPv6 address, which is one customer's.
    `network` is the /24 network of an IPv4 address, or the /64 network of an IPv6 address.
    All are None without an address, as over a Unix socket.
    """

    text: str | None
    group: str | None
    network: Network | None


class Senders:
    """Finds the client of each request, with the proxies that are trusted."""

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = tuple(trusted)
        self._kept = lru_cache(KEPT)(self._find)

    def find(self, request: web.Request) -> Sender:
        """Return the client of a request. The header is only read if a proxy is trusted."""
        forwarded = (header(request, "X-Forwarded-For") or "") if self._trusted else ""
        find = self._kept if len(forwarded) <= LONGEST_KEPT else self._find
        return find(request.remote, forwarded)

    def _find(self, peer: str | None, forwarded: str) -> Sender:
        address = find_client(peer, forwarded, self._trusted)
        if address is None:
            return Sender(None, None, None)
        is_v6 = isinstance(address, IPv6Address)
        network = ip_network((address, 64 if is_v6 else 24), strict=False)
        return Sender(str(address), str(network if is_v6 else address), network)


#: Of the application, and of a request.
SENDERS = web.AppKey("senders", Senders)
SENDER = web.RequestKey("sender", Sender)


def find_client(peer: str | None, forwarded: str, trusted: Sequence[Network]) -> Address | None:
    """Return the last address that is not of a trusted proxy: the peer, or one of the header.

    Clients can send the header too, so that only what trusted proxies have appended counts.
    Stops at invalid text, with the address of the proxy that has sent it.
    """
    address = _parse(peer or "")
    for part in reversed(forwarded.split(",")):
        if address is None or not any(address in network for network in trusted):
            break
        sent = _parse(part.strip())
        if sent is None:
            break
        address = sent
    return address


def _parse(text: str) -> Address | None:
    """Return an address without a zone, or None for invalid text.

    IPv4 addresses in IPv6 form are IPv4.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
