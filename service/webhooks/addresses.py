"""Rules for webhook URLs, and for the addresses to which deliveries may connect."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

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
