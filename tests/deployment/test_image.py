"""The image: its packages are pinned with hashes, and it runs read-only as an ordinary user."""

import asyncio
import ctypes
import json
import os
import re
import sys
from pathlib import Path

import pytest
from harness.dockerfile import CLONE_NEWNS, matches, read_ignored, read_steps
from harness.paths import ROOT
from harness.processes import free_port
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = (ROOT / "requirements.lock").read_text()
#: Name -> version of each pinned package.
PINNED = dict(re.findall(r"^([a-z0-9-]+)==([^ \\]+)", LOCK, re.MULTILINE))


def read_requirements() -> list[Requirement]:
    """Return the requirements of production."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    parts = [line.partition("#")[0].strip() for line in lines]
    return [Requirement(part) for part in parts if part]


def test_lock_has_a_permitted_version_of_every_requirement() -> None:
    """If this fails, run `make lock`."""
    for requirement in read_requirements():
        version = PINNED.get(canonicalize_name(requirement.name), "none")
        assert requirement.specifier.contains(version), (requirement.name, version)


def test_lock_has_hashes_and_names_no_registry() -> None:
    entries = re.split(r"^(?=[a-z])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(PINNED) > len(read_requirements())
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK and "--index" not in LOCK and "--find-links" not in LOCK


def test_image_gets_the_code_and_nothing_else() -> None:
    rules = read_ignored(ROOT / ".dockerignore")

    def is_sent(name: str) -> bool:
        hits = [excludes for pattern, excludes in rules if matches(pattern, Path(name))]
        return not hits[-1]

    sent = {path.name for path in ROOT.iterdir() if is_sent(path.name)}
    assert sent == {"requirements.lock", "run.py", "service", "schemas", "sql"}
    copied = [
        step.words()[0]
        for step in read_steps(ROOT / "deploy" / "Dockerfile")
        if step.name == "COPY" and "--from" not in step.text
    ]
    assert set(copied) == sent


def can_isolate_mounts() -> bool:
    """Return whether this process may make a mount namespace, tried in a child process."""
    if sys.platform != "linux" or os.geteuid() != 0 or sys.base_prefix == "/usr":
        return False
    child = os.fork()
    if not child:
        os._exit(ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.long
@pytest.mark.skipif(
    not can_isolate_mounts(), reason="needs root on Linux with mount namespaces, and its own Python"
)
async def test_image_builds_and_serves_read_only(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Downloads the locked packages. harness/dockerfile.py tells what differs from a container."""
    secret = Path("/dev/shm", f"einvoice-image-{os.getpid()}")
    secret.write_text(environment["DATABASE_URL"])
    variables = {**environment, "DATABASE_URL": "", "DATABASE_URL_FILE": str(secret)}
    arguments = [f"{name}={value}" for name, value in variables.items()]
    program = Path(__file__).with_name("image.py")
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, program, tmp_path, *arguments, f"PORT={free_port()}"],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    secret.unlink()
    assert process.returncode == 0, errors.decode()[-3000:]
    found = json.loads(output)
    assert found["is_healthy"] and found["exit_code"] == 0, found["log"]
    assert found["health_after_stop"] != 0
    assert found["uid"] == 10001 and found["groups"] == []
    assert found["writes"].count("Read-only file system") == 3
    assert {canonicalize_name(name) for name in found["packages"]} <= set(PINNED)
    assert [path for path in found["files"] if "pgserver" in path or "/tests/" in path[:12]] == []
    assert found["megabytes"] < 120
