"""The image: its packages are pinned with hashes, and it runs read-only as an ordinary user."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.harness.paths import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
FACTS = """
import importlib.metadata, json, os
print(json.dumps({"packages": [each.name for each in importlib.metadata.distributions()],
                  "uid": os.getuid(), "groups": os.getgroups()}))
"""
LOCK = (ROOT / "requirements.lock").read_text()
#: Name -> version of each pinned package.
PINNED = dict(re.findall(r"^([a-z0-9-]+)==([^ \\]+)", LOCK, re.MULTILINE))


def read_requirements() -> list[Requirement]:
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
    ignored = (ROOT / ".dockerignore").read_text().split()
    sent = {rule.removeprefix("!").rstrip("/") for rule in ignored if rule.startswith("!")}
    assert "*" in ignored
    assert sent == {"requirements.lock", "run.py", "service", "schemas", "sql"}
    copied = re.findall(r"^COPY (?!--from)(\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert {*copied} == sent


def run(*command: str | Path) -> str:
    """Run a command and return its output. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def has_engine() -> bool:
    """Return whether a container engine runs."""
    docker = shutil.which("docker")
    return (
        docker is not None and not subprocess.run([docker, "info"], capture_output=True).returncode
    )


@pytest.mark.long
@pytest.mark.skipif(not has_engine(), reason="no container engine runs")
def test_image_builds_and_runs_read_only_as_an_ordinary_user() -> None:
    """Downloads the base image and the locked packages."""
    image = run("docker", "build", "-q", "-f", DOCKERFILE, ROOT)
    python = ("docker", "run", "--rm", "--read-only", "--entrypoint", "python", image, "-c")
    found = json.loads(run(*python, FACTS))
    assert (found["uid"], found["groups"]) == (10001, [])
    assert {canonicalize_name(name) for name in found["packages"]} <= set(PINNED)
    assert "serve" in run("docker", "run", "--rm", "--read-only", image, "--help")
