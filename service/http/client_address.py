"""The address of a client, also behind reverse proxies."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from aiohttp import web

from service.config import Network
from service.http import app_keys
from service.http.requests import header

Address = IPv4Address | IPv6Address


def sender_of(request: web.Request) -> str | bytes | None:
    """Return what identifies the client in limits of requests.

    It is an IPv4 address, or the /64 network of an IPv6 address, which is one customer's.
    """
    trusted = request.app[app_keys.CONFIG].trusted_proxies
    address = find_client(request.remote, header(request, "X-Forwarded-For") or "", trusted)
    return address.packed[:8] if isinstance(address, IPv6Address) else address and str(address)


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
    """Return an address, or None for invalid text. IPv4 addresses in IPv6 form are IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
