"""Runs a Dockerfile without a container engine, as root of a mount namespace on Linux.

Each stage is a copy-on-write view of this machine's root, in place of the base image, in which the
steps run with chroot. What differs from a container: the base image (this machine's programs and
Python), the network, the process ids and the users are those of the machine, and nothing limits
capabilities or system calls. Folders with other people's files are hidden (`HIDDEN`).
"""

import ctypes
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Folders of this machine that a base image does not have, or that an image may not see.
HIDDEN = ("home", "mnt", "root", "srv", "tmp", "work")
#: Variables of the machine that a build needs to reach the package index.
PASSED = re.compile(r"(?:PIP_\w+|\w+_proxy|\w+_PROXY|SSL_CERT_\w+)")
BASE_PATH = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
IMPLICIT = {"EXPOSE", "LABEL", "STOPSIGNAL"}  # described, without an effect on the files
CLONE_NEWNS = 0x00020000
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of a Dockerfile and its arguments, with continued lines joined."""

    name: str
    text: str

    def words(self) -> list[str]:
        """Return the arguments of a JSON array or of words that a shell would separate."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


@dataclass(slots=True)
class Stage:
    """The file system of a stage and what its steps have set."""

    root: Path
    changes: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    directory: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)


def read_steps(path: Path) -> list[Step]:
    """Return the steps of a Dockerfile."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n", " ", "\n".join(lines))
    parts = [line.strip().split(None, 1) for line in text.splitlines() if line.strip()]
    return [Step(name.upper(), rest.strip()) for name, rest in parts]


def isolate_mounts() -> None:
    """Enter a mount namespace, in which mounts are visible to this process and its children."""
    if LIBC.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "a mount namespace cannot be made")
    run(["mount", "--make-rprivate", "/"])


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command. Raises CalledProcessError."""
    return subprocess.run(command, check=True, text=True, **options)


class Build:
    """Runs the steps of a Dockerfile with the files of a context in an empty folder."""

    def __init__(self, dockerfile: Path, context: Path, home: Path) -> None:
        self._dockerfile, self._context, self._home = dockerfile, context, home
        self._arguments: dict[str, str] = {}
        self._stages: dict[str, Stage] = {}
        self._ignores = read_ignored(context / ".dockerignore")

    def run(self) -> Stage:
        """Run all steps, and return the last stage."""
        for step in read_steps(self._dockerfile):
            print(f"{step.name} {step.text}", file=sys.stderr, flush=True)
            if step.name not in IMPLICIT:
                STEPS[step.name](self, step)
        return self._stage

    @property
    def _stage(self) -> Stage:
        return list(self._stages.values())[-1]

    def _set_argument(self, step: Step) -> None:
        name, _, value = step.text.partition("=")
        self._arguments[name] = value

    def _begin_stage(self, step: Step) -> None:
        words = step.text.split()
        assert "$" not in re.sub(r"\$\{(\w+)\}", self._value_of, words[0])
        name = words[2] if len(words) == 3 else f"stage-{len(self._stages)}"
        self._stages[name] = mount_stage(self._home / name)

    def _value_of(self, found: re.Match[str]) -> str:
        return self._arguments[found[1]]

    def _copy(self, step: Step) -> None:
        """Copy files of the context, or of another stage, and create the target's folders."""
        words = step.words()
        source_stage = words.pop(0).partition("=")[2] if words[0].startswith("--from=") else ""
        *sources, target = words
        to = self._inside(target)
        for source in sources:
            if source_stage:
                place, skip = self._stages[source_stage].root / source.lstrip("/"), None
            else:
                place, skip = self._context / source, self._skip
                assert not self._is_ignored(Path(source)), f"{source} is ignored"
            if place.is_dir():
                shutil.copytree(place, to, symlinks=True, ignore=skip, dirs_exist_ok=True)
            else:
                is_folder = target.endswith("/") or to.is_dir()
                if is_folder:
                    to.mkdir(parents=True, exist_ok=True)
                shutil.copy2(place, to)

    def _skip(self, folder: str, names: list[str]) -> list[str]:
        inner = Path(folder).relative_to(self._context)
        return [name for name in names if self._is_ignored(inner / name)]

    def _is_ignored(self, path: Path) -> bool:
        """Return whether the last matching rule excludes a file or one of its folders."""
        ignored = False
        for pattern, excludes in self._ignores:
            if any(matches(pattern, part) for part in (path, *path.parents[:-1])):
                ignored = excludes
        return ignored

    def _inside(self, target: str) -> Path:
        """Return the path on this machine of a path in the current stage."""
        stage = self._stage
        return stage.root / str(Path(stage.directory, target)).lstrip("/")

    def _run_command(self, step: Step) -> None:
        command = step.words() if step.text.startswith("[") else ["/bin/sh", "-c", step.text]
        passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
        environment = {"HOME": "/root", **passed, **self._stage.environment}
        run(enter(self._stage, command), env=environment, stdout=sys.stderr)

    def _set_environment(self, step: Step) -> None:
        for word in shlex.split(step.text):
            name, _, value = word.partition("=")
            self._stage.environment[name] = value.replace("$PATH", BASE_PATH)

    def _set_directory(self, step: Step) -> None:
        self._inside(step.text).mkdir(parents=True, exist_ok=True)
        self._stage.directory = str(Path(self._stage.directory, step.text))

    def _set_user(self, step: Step) -> None:
        self._stage.user = step.text

    def _set_entrypoint(self, step: Step) -> None:
        self._stage.entrypoint = step.words()

    def _set_command(self, step: Step) -> None:
        self._stage.command = step.words()

    def _set_health(self, step: Step) -> None:
        self._stage.health = json.loads(step.text.partition("CMD ")[2])


#: Instruction -> what it does. Another instruction is an error.
STEPS: dict[str, Callable[[Build, Step], None]] = {
    "ARG": Build._set_argument,
    "CMD": Build._set_command,
    "COPY": Build._copy,
    "ENTRYPOINT": Build._set_entrypoint,
    "ENV": Build._set_environment,
    "FROM": Build._begin_stage,
    "HEALTHCHECK": Build._set_health,
    "RUN": Build._run_command,
    "USER": Build._set_user,
    "WORKDIR": Build._set_directory,
}


def read_ignored(path: Path) -> list[tuple[str, bool]]:
    """Return the rules of a .dockerignore as (pattern, whether it excludes)."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    rules = [line for line in lines if line and not line.startswith("#")]
    return [(rule.removeprefix("!"), not rule.startswith("!")) for rule in rules]


def matches(pattern: str, path: Path) -> bool:
    """Return whether a pattern of .dockerignore matches a path. `**/` matches any folders."""
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(path.name, pattern[3:])
    parts = pattern.split("/")
    return len(parts) == len(path.parts) and all(map(fnmatch.fnmatchcase, path.parts, parts))


def mount_stage(home: Path) -> Stage:
    """Mount a copy-on-write view of this machine's root, with the Python that runs this."""
    root, changes, work = home / "root", home / "changes", home / "work"
    for folder in (root, changes, work):
        folder.mkdir(parents=True)
    options = f"lowerdir=/,upperdir={changes},workdir={work}"
    run(["mount", "-t", "overlay", "overlay", "-o", options, root])
    for name in filter(lambda name: (root / name).is_dir(), HIDDEN):
        run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / name])
    for name in ("dev", "proc"):
        run(["mount", "--rbind", f"/{name}", root / name])
    prefix = root / sys.base_prefix.lstrip("/")
    prefix.mkdir(parents=True, exist_ok=True)
    run(["mount", "--bind", "-o", "ro", sys.base_prefix, prefix])
    return Stage(root, changes)


def enter(stage: Stage, command: Sequence[str]) -> list[str]:
    """Return the command that runs a command in a stage, as its user and in its directory."""
    uid, _, gid = stage.user.partition(":")
    privileges = [] if uid == "0" else ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    user = ["setpriv", "--reuid", uid, "--regid", gid, "--clear-groups", *privileges]
    return [
        *["chroot", str(stage.root), *user],
        *["env", "--chdir", stage.directory, *command],
    ]


def make_read_only(stage: Stage) -> None:
    """Make the root of a stage read-only, as `docker run --read-only` does."""
    run(["mount", "-o", "remount,ro", stage.root])


def find_new_files(stage: Stage) -> Iterator[Path]:
    """Yield the files that the steps have added or changed."""
    for path in stage.changes.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(stage.changes)
