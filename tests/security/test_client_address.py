"""The client's address behind reverse proxies: headers count only from trusted ones."""

from ipaddress import ip_network

import pytest

from service.http.client_address import find_client
from tests.api_requests import request_json
from tests.conftest import Client, StartService

TRUSTED = tuple(map(ip_network, ("10.0.0.0/24", "192.0.2.7", "2001:db8::/64")))


@pytest.mark.parametrize(
    "peer, forwarded, client",
    [
        ("198.51.100.1", "", "198.51.100.1"),
        ("198.51.100.1", "203.0.113.5", "198.51.100.1"),  # no trusted proxy
        ("10.0.0.2", "", "10.0.0.2"),
        ("10.0.0.2", "203.0.113.5", "203.0.113.5"),
        ("10.0.0.2", "203.0.113.66, 203.0.113.5", "203.0.113.5"),  # the first one is the client's
        ("10.0.0.2", "203.0.113.66,203.0.113.5 , 192.0.2.7", "203.0.113.5"),
        ("10.0.0.2", "10.0.0.9", "10.0.0.9"),
        ("10.0.0.2", "unknown", "10.0.0.2"),
        ("10.0.0.2", "203.0.113.5, 203.0.113.6:80", "10.0.0.2"),
        ("10.0.0.2", ",", "10.0.0.2"),
        ("::ffff:10.0.0.2", "2001:db8:1::5", "2001:db8:1::5"),
        ("2001:db8::1", "::ffff:203.0.113.5", "203.0.113.5"),
        (None, "203.0.113.5", "None"),
    ],
)
def test_client_is_the_last_address_that_is_no_trusted_proxy(
    peer: str | None, forwarded: str, client: str
) -> None:
    assert str(find_client(peer, forwarded, TRUSTED)) == client


async def _statuses(api: Client, addresses: list[str]) -> list[int]:
    """Return the statuses of requests with invalid keys that were forwarded for addresses."""
    statuses = []
    for address in addresses:
        headers = {"X-API-Key": "no", "X-Forwarded-For": address}
        statuses.append((await request_json(api, "GET", "/api/invoices", headers=headers))[0])
    return statuses


async def test_limit_of_invalid_keys_is_per_client_of_a_trusted_proxy(start: StartService) -> None:
    api = await start(WRONG_KEYS_PER_MINUTE="1", TRUSTED_PROXIES="127.0.0.0/8, ::1")
    sent = ["203.0.113.5", "203.0.113.6", "203.0.113.7, 203.0.113.5", "2001:db8::1", "2001:db8::2"]
    assert await _statuses(api, sent) == [401, 401, 429, 401, 429]


async def test_forwarded_address_is_ignored_without_trusted_proxies(start: StartService) -> None:
    api = await start(WRONG_KEYS_PER_MINUTE="1")
    assert await _statuses(api, ["203.0.113.5", "203.0.113.6"]) == [401, 429]
