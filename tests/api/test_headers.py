"""Headers that prevent caching and sniffing, on every route and every kind of response."""

from typing import Any

import aiohttp

from tests.api_invoices import create_delivery, create_one_of_each
from tests.api_reads import get_documents
from tests.api_requests import (
    INTEGRATIONS,
    KEYLESS,
    create_integration_records,
    fill_path,
    list_routes,
    open_integrations,
    place_of,
)
from tests.conftest import Client, Company

#: Records are read before they are deleted.
METHODS = ("HEAD", "GET", "POST", "PUT", "DELETE")


def assert_protected(path: str, response: aiohttp.ClientResponse) -> None:
    """Fail unless a response has the headers of its surface."""
    headers, place = response.headers, f"{response.method} {path} {response.status}"
    assert headers.getall("X-Content-Type-Options") == ["nosniff"], place
    if path in KEYLESS and response.status < 400:
        assert headers.getall("Cache-Control") == ["no-cache"], place
        return
    assert headers.getall("Cache-Control") == ["private, no-store"], place
    assert headers.getall("Vary") == [
        "X-Portal-Key" if path.startswith(INTEGRATIONS) else "X-API-Key"
    ], place


async def test_every_route_sends_the_headers_on_success(
    everywhere: Client, environment: dict[str, str], company: Company
) -> None:
    api, account_id = everywhere, await open_integrations(everywhere, environment)
    ids = {
        **await create_one_of_each(api),
        **await create_integration_records(api, environment, account_id, company.id),
    }
    parts = {
        "delivery": await create_delivery(api, ids["/api/webhooks"]),
        "document": (await get_documents(api, ids["/api/invoices"]))[0]["id"],
    }
    found = {}
    for method in METHODS:
        for _, path in list_routes(api, method):
            part = parts["delivery" if "{delivery_id}" in path else "document"]
            body: dict[str, Any] = {"json": {}} if method in ("POST", "PUT") else {}
            async with api.request(
                method, fill_path(path, ids.get(place_of(path), 1), part), **body
            ) as response:
                await response.read()
                assert_protected(path, response)
                found[method, path] = response.status
    good = [path for (method, path), status in found.items() if (method, status) == ("GET", 200)]
    assert len(good) > 30
    assert set(found.values()) >= {200, 400, 403, 404, 422}


async def test_every_route_sends_the_headers_on_errors(everywhere: Client) -> None:
    for method in METHODS:
        for _, path in list_routes(everywhere, method):
            for headers in (
                {"X-API-Key": "", "X-Portal-Key": ""},
                {"X-API-Key": "x", "X-Portal-Key": "x"},
                {},
            ):
                async with everywhere.request(
                    method, fill_path(path, 10**15), headers=headers, data=b"x"
                ) as response:
                    assert_protected(path, response)
    for method, path in (
        ("GET", "/api/nothing"),
        ("PATCH", "/api/invoices"),
        ("GET", f"{INTEGRATIONS}nothing"),
    ):
        async with everywhere.request(method, path) as response:
            assert response.status in (404, 405)
            assert_protected(path, response)


async def test_304_response_has_the_headers(everywhere: Client) -> None:
    for path in ("/api/companies", "/api/openapi.json"):
        async with everywhere.get(path) as response:
            etag = response.headers["ETag"]
        async with everywhere.get(path, headers={"If-None-Match": etag}) as response:
            assert response.status == 304
            assert_protected(path, response)


async def test_health_endpoints_and_unknown_paths_forbid_sniffing(everywhere: Client) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/", "/api"):
        async with everywhere.get(path) as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff", path
