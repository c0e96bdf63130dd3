"""Check that a peer of compare.py gives the responses of the service."""

import json
from typing import Any

import aiohttp
from compare_targets import EXPORT_ALL, PAGE, Data
from programs import ProgramError
from wrk import CODES

#: Members of a created record that differ between the targets.
OWN = ("id", "invoice_code", "issue_date", "created_at", "updated_at")


async def read_responses(base: str, data: Data) -> dict[str, Any]:
    """Return the responses to one request of each operation, as far as targets share them."""
    code = next(CODES)
    body = data.body.read_text().replace('"code": 0', f'"code": {code}', 1)
    async with aiohttp.ClientSession(base) as http:

        async def send(method: str, path: str, key: str, text: str = "") -> tuple[int, Any]:
            headers = {"X-API-Key": key}
            if text:
                headers["Content-Type"] = "application/json"
            async with http.request(method, path, headers=headers, data=text or None) as response:
                return response.status, await response.json()

        company = data.companies[0]
        key = company.company.key
        status, created = await send("POST", "/api/invoices", key, body)
        repeated, refusal = await send("POST", "/api/invoices", key, body)
        invalid, _ = await send("POST", "/api/invoices", key, body.replace('"price"', '"prize"'))
        path = f"/api/invoices/{created.get('data', {}).get('id')}"
        found, record = await send("GET", path, key)
        if found != 200 or record.pop("id") != created["data"].pop("id"):
            raise ProgramError(f"{base} did not store an invoice: {created}, {record}")
        return {
            "list": await send("GET", PAGE, data.companies[-1].company.key),
            "get": await send("GET", f"/api/invoices/{company.ids[0]}", key),
            "export": await send("GET", EXPORT_ALL, data.companies[-1].company.key),
            "create": (status, created, repeated, refusal.get("errors"), invalid),
            "created": {name: record[name] for name in record if name not in OWN},
            "missing": (await send("GET", f"/api/invoices/{2**40}", key))[0],
            "wrong key": (await send("GET", PAGE, "wrong"))[0],
        }


def compare_responses(target: str, responses: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise ProgramError if a response differs from the expected one."""
    for name, response in responses.items():
        if response != expected[name]:
            raise ProgramError(
                f"{target}: {name} differs from the service:\n"
                f"{json.dumps(response)[:3000]}\n{json.dumps(expected[name])[:3000]}"
            )
