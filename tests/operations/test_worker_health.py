"""The listener of the worker: health and metrics, and nothing else."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from service.version import VERSION
from tests.api_requests import request_json
from tests.harness.processes import ChildProcess, free_port, read_listening_ports


@pytest.fixture
async def worker(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[ChildProcess]:
    port = free_port()
    variables = {**environment, "WORKER_PORT": str(port)}
    async with ChildProcess(["worker"], variables, tmp_path / "log", port, "/readyz") as process:
        yield process


async def test_worker_answers_health_readiness_and_metrics(worker: ChildProcess) -> None:
    async with aiohttp.ClientSession(worker.base) as http:
        assert await request_json(http, "GET", "/healthz") == (
            200,
            {"status": "ok", "version": VERSION},
        )
        status, body = await request_json(http, "GET", "/readyz")
        assert (status, body["status"]) == (200, "ok")
        async with http.get("/metrics") as response:
            assert "einvoice_database_up 1.0" in await response.text()
    assert await worker.stop() == 0


@pytest.mark.parametrize("path", ["/api/invoices", "/api/openapi.json", "/", "/sign-in"])
async def test_worker_serves_neither_the_api_nor_pages(worker: ChildProcess, path: str) -> None:
    async with aiohttp.ClientSession(worker.base) as http, http.get(path) as response:
        assert response.status == 404


async def test_worker_without_a_port_listens_on_nothing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    async with ChildProcess(["worker"], environment, tmp_path / "log") as process:
        await process.printed("The worker is running.")
        assert process.pid is not None and read_listening_ports(process.pid) == set()
