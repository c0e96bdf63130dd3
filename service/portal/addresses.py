"""The addresses of the portal: the environment that they belong to, and connections to them.

Portal: 1.1
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import SplitResult, urlsplit

from service.config import LOOPBACK, SETTINGS, Config
from service.errors import describe_error, find_message

#: Environment -> its address by field of Config. Portal: 1.1
ENVIRONMENTS = {
    "production": {
        "portal_api_base": "https://api.myinvois.hasil.gov.my",
        "portal_identity_base": "https://api.myinvois.hasil.gov.my",
        "portal_web_base": "https://myinvois.hasil.gov.my",
    },
    "preproduction": {
        "portal_api_base": "https://preprod-api.myinvois.hasil.gov.my",
        "portal_identity_base": "https://preprod-api.myinvois.hasil.gov.my",
        "portal_web_base": "https://preprod.myinvois.hasil.gov.my",
    },
}
SANDBOX = "sandbox"
#: Fields of Config with an address of the portal.
FIELDS = tuple(ENVIRONMENTS["production"])

#: Tries how far a connection to an address gets. Raises OSError.
Probe = Callable[[SplitResult], Awaitable[None]]


def get_environment(address: str) -> str | None:
    """Return the environment of an address: a published one or the sandbox, None if unknown."""
    host = urlsplit(address).hostname
    if host in LOOPBACK:
        return SANDBOX
    for environment, addresses in ENVIRONMENTS.items():
        if host in {urlsplit(known).hostname for known in addresses.values()}:
            return environment
    return None


def find_address_problems(config: Config) -> list[str]:
    """Return what is wrong with the configured addresses, as sentences. Nothing is requested."""
    return [*_find_misplaced(config), *_find_mixed(config)]


def _find_misplaced(config: Config) -> Iterator[str]:
    """Yield a sentence for each published address of another setting, or in another form."""
    for field in FIELDS:
        address = getattr(config, field)
        environment = get_environment(address)
        expected = ENVIRONMENTS.get(environment or "", {}).get(field, address)
        if address != expected:
            yield f"{SETTINGS[field].variable} must be {expected} ({environment}), not {address}."


def _find_mixed(config: Config) -> Iterator[str]:
    environments = {field: get_environment(getattr(config, field)) for field in FIELDS}
    if len(set(environments.values()) - {None}) > 1:
        named = ", ".join(
            f"{SETTINGS[field].variable} ({environment})"
            for field, environment in environments.items()
            if environment
        )
        yield f"The addresses belong to different environments: {named}. Set all to the same one."


async def find_problem(field: str, address: str, seconds: float, probe: Probe) -> str | None:
    """Return why a probe of an address fails, with what to do, or None."""
    try:
        async with asyncio.timeout(seconds):
            await probe(urlsplit(address))
    except OSError as error:
        facts = {
            "variable": SETTINGS[field].variable,
            "host": urlsplit(address).hostname,
            "place": urlsplit(address).netloc,
            "error": error,
            "class": describe_error(error),
        }
        return find_message(__file__, error, "", facts)
    return None


async def look_up(parts: SplitResult) -> None:
    """Look the name up. Raises OSError."""
    await asyncio.get_running_loop().getaddrinfo(parts.hostname or "", None)


async def connect(parts: SplitResult) -> None:
    """Look the name up, connect, and make the TLS handshake. Raises OSError. No request is sent."""
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    _, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
    writer.close()
