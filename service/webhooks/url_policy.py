"""Which addresses deliveries may go to: rules on a URL as it is written, and on an address that is about to be called."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from yarl import URL

PORTS = (443, 8443)
#: Of IPv6 only what is in global use can be called: that leaves out loopback, link-local, unique
#: local, multicast,
#: IPv4-mapped and NAT64 addresses, present and future.
GLOBAL_IPV6 = ip_network("2000::/3")
#: Within what is left: networks that are not the internet, or that lead to an IPv4 address that we
#: do not see.
INTERNAL = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network; Linux takes 0.0.0.0 for loopback
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' shared addresses
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local; clouds give out credentials here
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # Teredo among them
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
]
_NAME = re.compile(
    r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?", re.ASCII
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


def url_violation(text, allow_internal):
    """Why a URL cannot be an endpoint, in words; None when it can. What its host resolves to is seen at each delivery."""
    try:
        url = URL(text)
        host = (url.raw_host or "").lower()
    except ValueError:
        return "url is not an address."
    if url.scheme != "https" and not (allow_internal and url.scheme == "http"):
        return "url must start with https://."
    if url.raw_user is not None or url.raw_password is not None or url.fragment:
        return "url must hold neither a user nor a fragment."
    if not allow_internal and url.port not in PORTS:
        return f"url must have the port {' or '.join(map(str, PORTS))}."
    return _host_refusal(host, allow_internal)


def is_internal(text):
    """Whether an address, as the system resolved it, is none of the public internet; also when it cannot be read."""
    try:
        address = ip_address(text)
    except ValueError:
        return True
    if isinstance(address, IPv6Address) and (address not in GLOBAL_IPV6 or address.scope_id):
        return True
    return any(address in network for network in INTERNAL)


def _host_refusal(host, allow_internal):
    if ":" in host or _looks_numeric(host):
        try:
            address = IPv6Address(host) if ":" in host else IPv4Address(host)
        except ValueError:
            return "url has a number for its host that is not an address in its usual form."
        if is_internal(str(address)) and not allow_internal:
            return "url leads to an internal address."
        return None
    return (
        None
        if _NAME.fullmatch(host) and len(host) <= 253
        else "url has no host that can be looked up."
    )


def _looks_numeric(host):
    """What a resolver may take for a number: its last part is one, decimal or hexadecimal."""
    return bool(_NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]))
