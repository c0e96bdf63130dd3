"""Builds the image without a container engine, runs it read-only, and prints what was found.

    python tests/deployment/image.py FOLDER NAME=VALUE ...

Needs root on Linux, and an empty folder. The variables are those of the service. It prints one
JSON object.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import dockerfile
from harness.paths import ROOT

START_SECONDS = 60
#: Writes next to the code, in the temporary folder and in the home folder.
WRITE = "for f in /app/x /opt/venv/x /var/tmp/x; do (echo > $f) 2>&1 || true; done"
LIST = """
import importlib.metadata, json, os
print(json.dumps({"packages": sorted(d.name.lower() for d in importlib.metadata.distributions()),
                  "uid": os.getuid(), "groups": os.getgroups()}))
"""


def inspect(folder: Path, variables: dict[str, str]) -> dict[str, object]:
    """Return what a build, a start, a health check and a stop have shown."""
    stage = dockerfile.Build(ROOT / "deploy" / "Dockerfile", ROOT, folder).run()
    files = list(dockerfile.find_new_files(stage))
    size = sum((stage.changes / path).stat().st_size for path in files)
    dockerfile.make_read_only(stage)
    environment = {**stage.environment, **variables}

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        command = dockerfile.enter(stage, command)
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    command = dockerfile.enter(stage, [*stage.entrypoint, *stage.command])
    with (folder / "log").open("w") as log:
        service = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        is_healthy = _wait_for_health(service, lambda: run(stage.health).returncode == 0)
        written = run(["/bin/sh", "-c", WRITE])
        service.terminate()
        code = service.wait(60)
    return {
        "files": sorted(map(str, files)),
        "megabytes": round(size / 1e6, 1),
        "is_healthy": is_healthy,
        "writes": written.stdout + written.stderr,
        "exit_code": code,
        "log": (folder / "log").read_text(),
        "health_after_stop": run(stage.health).returncode,
        **json.loads(run(["python", "-c", LIST]).stdout),
    }


def _wait_for_health(service: subprocess.Popen[bytes], ask: Callable[[], bool]) -> bool:
    """Return whether the health check succeeded before the limit and the end of the service."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and service.poll() is None:
        if ask():
            return True
        time.sleep(0.2)
    return False


if __name__ == "__main__":
    dockerfile.isolate_mounts()
    target, *pairs = sys.argv[1:]
    os.umask(0o022)
    print(json.dumps(inspect(Path(target), dict(pair.split("=", 1) for pair in pairs))))
