"""The README, the tutorial and the banner of `serve`: a reader can paste them, more than once."""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from tests.conftest import some_long, until
from tests.fixtures_service import RunCommand
from tests.harness.certificates import issued
from tests.harness.environments import GENEROUS, SCALED
from tests.harness.paths import ROOT
from tests.harness.processes import Service, free_port
from tests.harness.waiting import patience

PAGES = ("README.md", "docs/tutorial.md")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A comment with the statuses of the requests in its line, such as `# 400: code CF349`.
EXPECTED = re.compile(r" # (\d{3}(?:, \d{3})*)(?=:|$)", re.MULTILINE)
#: `api` shows the status of each response on a line of standard error.
SHOWN = re.compile(r"^  (\d{3})$", re.MULTILINE)
BLOCK_SECONDS = 300  # for all commands of a block, also on a busy machine
#: Waits until the portal has decided about all documents, instead of for a time.
SETTLE = """
sleep() {
  for list in invoices adjustment-notes consolidated-invoices; do
    for status in Submitting Submitted; do
      until curl -s "$API/api/$list?status=$status" -H "X-API-Key: $KEY" | grep -q '"total":0'; do
        command sleep 0.05
      done
    done
  done
}
"""


@pytest.fixture
async def service(database: str, tmp_path: Path) -> AsyncIterator[Service]:
    """A service that was started like `make run`, with its sandbox, on other ports."""
    environment = {
        **SCALED,
        **GENEROUS,
        "DATABASE_URL": database,
        "DATABASE_OWNER_URL": "",
        "DATA_DIR": str(tmp_path / "data"),
        "SANDBOX_PORT": str(free_port()),
        "SANDBOX_PROCESSING_SECONDS": "0.1",
    }
    async with Service(environment, tmp_path / "service.log") as service:
        await service.printed("/submitted-documents")
        yield service


def _read_exports(service: Service) -> str:
    """Return the line of the banner that sets KEY, API and SANDBOX."""
    [line] = re.findall(r"^ *(export KEY=einv.*)$", service.output(), re.MULTILINE)
    return line


async def _paste(script: str, folder: Path = ROOT, **variables: str) -> tuple[str, str]:
    """Run a script with bash, and return its output and its errors. Fails if it does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            cwd=folder,
            env={**os.environ, **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            async with patience(BLOCK_SECONDS):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        assert process.returncode == 0, texts
    return texts[0], texts[1]


def _read_blocks(page: str) -> list[str]:
    """Return the blocks of a page without the first one, and without those of the crash."""
    text = re.sub(r"^## A crash.*?(?=^## )", "", (ROOT / page).read_text(), flags=re.M | re.S)
    first, *others = BLOCK.findall(text)
    assert first.startswith("export KEY=")
    return others


@pytest.mark.parametrize("page", some_long(PAGES, 1))
async def test_each_block_of_a_page_can_be_pasted_twice(service: Service, page: str) -> None:
    port = str(free_port())
    blocks = [block.replace("9000", port) for block in _read_blocks(page)]
    script = "\n".join([_read_exports(service), SETTLE, *(block * 2 for block in blocks)])
    expected = [
        status
        for block in blocks
        for found in EXPECTED.findall(block * 2)
        for status in found.split(", ")
    ]
    _, err = await _paste(script)
    assert SHOWN.findall(err) == expected and len(expected) > 20


def _write_delivered_files(folder: Path) -> None:
    """Write the code lists, and a certificate as an authority delivers it."""
    lists = {"UnitTypes": ["KGM"], "MSICSubCategoryCodes": ["56101"]}
    for name, listed in lists.items():
        entries = [{"Code": code, "Description": code} for code in listed]
        (folder / f"{name}.json").write_text(json.dumps(entries))
    made = issued()
    assert isinstance(made.key, RSAPrivateKey)
    delivered = serialize_key_and_certificates(
        None, made.key, made.certificate, None, BestAvailableEncryption(b"import")
    )
    (folder / "company.p12").write_bytes(delivered)
    for name in ("import-password", "key-password"):
        (folder / name).write_text(f"{name.partition('-')[0]}\n")


async def test_the_commands_of_the_go_live_guide_run_in_their_order(
    environment: dict[str, str], tmp_path: Path
) -> None:
    _write_delivered_files(tmp_path)
    variables = {**environment, **GENEROUS, "PORTAL_DOCUMENT_VERSION": "1.1"}
    _, *blocks = BLOCK.findall((ROOT / "docs/go-live.md").read_text())
    einvoice = f'einvoice() {{ {sys.executable} {ROOT}/run.py "$@"; }}'
    script = "\n".join(["set -e -o pipefail", einvoice, SETTLE, *blocks])
    async with Service(variables, tmp_path / "service.log") as service:
        out, err = await _paste(script, tmp_path, **variables, API=service.base)
    assert not re.search("^failed", out, re.MULTILINE) and "Traceback" not in err
    assert '"ready":true' in out and '"status":"Valid"' in out and "been cancelled" in out
    assert not (tmp_path / "key.pem").exists()


def test_both_pages_define_the_same_helpers() -> None:
    readme, tutorial = (BLOCK.findall((ROOT / page).read_text())[:2] for page in PAGES)
    assert readme == tutorial


async def test_the_requests_of_the_banner_can_be_pasted_twice(service: Service) -> None:
    text = service.output()
    requests = text[text.index("  ID=$(curl") :]
    script = "\n".join([_read_exports(service), SETTLE, requests, requests])
    out, _ = await _paste(script)
    assert out.count('"status":"Valid"') == 4 and "errors" not in out.replace('"errors":[]', "")


async def test_commands_find_the_ports_of_the_running_service(
    service: Service, database: str, tmp_path: Path, command: RunCommand
) -> None:
    environment = {
        "DATABASE_URL": database,
        "DATA_DIR": str(tmp_path / "data"),
        "PORTAL_API_BASE": "",
        "PORTAL_IDENTITY_BASE": "",
        "PORTAL_WEB_BASE": "",
    }
    reconciled = await command("reconcile", **environment)
    assert reconciled.code == 0 and '"failed": 0' in reconciled.out, reconciled
    link = await command("link-user", "--email", "owner@kopitiga.example", **environment)
    assert f"{service.base}/link/" in link.out
    units = tmp_path / "units.json"
    units.write_text(json.dumps([{"Code": "KGM", "Name": "kilogram"}]))
    imported = await command("import-codes", str(units), **environment)
    assert (imported.code, imported.err) == (0, ""), imported  # the sandbox has them, too
    await service.stop()
    assert not (tmp_path / "data" / "running.json").exists()


async def test_a_second_start_prints_how_to_create_a_key(service: Service) -> None:
    await service.stop()
    await service.start()
    text = await service.printed("/submitted-documents")
    await until(
        lambda: asyncio.to_thread(service.output), lambda text: text.count("ID=$(curl") == 2
    )
    assert re.search(r"sed 's/.\*\"key\": \"\\\(\[\^\"\]\*\\\)\".\*/\\1/'\)", text), text


def test_no_text_finds_processes_by_their_names() -> None:
    names = re.compile(r"\b(pgrep|pkill|killall)\b")
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("service/**/*.py")]
    texts += [ROOT / "Makefile", *ROOT.glob("tests/harness/*.py"), *ROOT.glob("bench/*.py")]
    assert [path for path in texts if names.search(path.read_text())] == []


def test_addresses_are_not_fixed_in_the_blocks() -> None:
    for page in PAGES:
        _, *blocks = BLOCK.findall((ROOT / page).read_text())
        assert not re.search(r"127\.0\.0\.1:80[89]", "".join(blocks)), os.fspath(page)
