"""Units, compose file and Kubernetes manifests: valid, hardened, consistent with the service."""

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from service.commands.serve import LONGEST_STOP_SECONDS
from service.config import SETTINGS, read_config
from service.http.server import KEEPALIVE_SECONDS
from service.sandbox.settings import VARIABLES as SANDBOX_VARIABLES
from tests.harness.paths import ROOT
from tests.harness.processes import ChildProcess, free_port, run_command

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
MANIFESTS: list[dict[str, Any]] = [
    manifest
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]
POD_MANIFESTS = [manifest for manifest in MANIFESTS if "template" in manifest.get("spec", {})]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
NGINX = (DEPLOY / "nginx" / "einvoice.conf").read_text()
#: The user of the image, as it is written there.
(USER,) = re.findall(r"^USER (\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
KUBERNETES_VERSIONS = ("1.29", kubernetes_validate.latest_version())
#: The port of the image.
PORT = 8080
#: Probe of a container -> its path.
PROBES = {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
#: Units whose exposure, from 0 to 10, is higher need a reason.
MOST_EXPOSURE = 1.5
#: A valid key for encryption, as the text of every secret that is no URL.
SECRET = base64.b64encode(bytes(32)).decode()


# Schemas


def test_compose_file_follows_the_specification() -> None:
    jsonschema.validate(COMPOSE, get_builtin_schema("vendor.compose-spec"))


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_manifests_follow_their_schemas(version: str) -> None:
    for manifest in MANIFESTS:
        kubernetes_validate.validate(manifest, version, strict=True)
    kinds = {manifest["kind"] for manifest in MANIFESTS}
    assert kinds == {"ConfigMap", "Deployment", "Job", "PodDisruptionBudget", "Service"}


def run_analysis(folder: Path, *arguments: str) -> str:
    """Return the output of systemd-analyze for copies of the units with a Python that exists."""
    names = []
    for unit in UNITS:
        text = unit.read_text().replace("/opt/einvoice/venv/bin/python", "/bin/true")
        for name in {unit.name, unit.name.replace("@", "@8081")}:
            (folder / name).write_text(text)
        names.append(str(folder / unit.name.replace("@", "@8081")))
    done = subprocess.run(
        ["systemd-analyze", *arguments, *names],
        env={**os.environ, "SYSTEMD_PAGER": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@needs_systemd
def test_units_are_valid(tmp_path: Path) -> None:
    assert run_analysis(tmp_path, "verify", "--man=no") == ""


@needs_systemd
def test_units_are_hardened(tmp_path: Path) -> None:
    output = run_analysis(tmp_path, "security", "--offline=true", "--no-pager")
    levels = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", output)
    assert len(levels) == len(UNITS) and max(map(float, levels)) <= MOST_EXPOSURE


# Settings


def get_container(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the container of a manifest with pods, else an empty dictionary."""
    pod = manifest["spec"]["template"]["spec"] if manifest in POD_MANIFESTS else {}
    (container,) = pod.get("containers", [{}])
    return container


def _variables() -> Iterator[tuple[str, str]]:
    """Yield (place, name) of every variable that a file sets for the service."""
    for name in re.findall(r"^#? ?([A-Z_]+)=", (DEPLOY / "einvoice.env").read_text(), re.MULTILINE):
        yield "einvoice.env", name
    for name, service in SERVICES.items():
        if "einvoice" in service["image"]:
            yield from ((name, variable) for variable in service["environment"])
    for unit in UNITS:
        for line in re.findall(r"^Environment=(.*)$", unit.read_text(), re.MULTILINE):
            yield from ((unit.name, pair.partition("=")[0]) for pair in line.split())
    for manifest in MANIFESTS:
        if manifest["kind"] == "ConfigMap":
            yield from (("config.yaml", name) for name in manifest["data"])
        yield from (("service.yaml", one["name"]) for one in get_container(manifest).get("env", ()))


def test_every_variable_is_a_setting() -> None:
    known = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", *SANDBOX_VARIABLES}
    for setting in SETTINGS.values():
        known |= {setting.variable, *([setting.file_variable] if setting.parser.is_secret else ())}
    found = list(_variables())
    assert len(found) > 30
    assert [(place, name) for place, name in found if name not in known] == []


def test_no_file_has_a_secret() -> None:
    values = [str(value) for manifest in MANIFESTS for value in manifest.get("data", {}).values()]
    values += [str(service.get("environment", "")) for service in SERVICES.values()]
    text = " ".join(values) + (DEPLOY / "einvoice.env").read_text()
    assert not re.search(r"postgresql://|SECRET=\S|SECRET_KEY=|PASSWORD=", text)
    assert {manifest["kind"] for manifest in MANIFESTS}.isdisjoint({"Secret"})


def test_examples_of_settings_are_valid() -> None:
    (config,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "ConfigMap"]
    for variables in (read_env_file(), config["data"]):
        settings = {name: text for name, text in variables.items() if not name.endswith("_FILE")}
        given = {"PORTAL_CLIENT_ID": "x", "PORTAL_CLIENT_SECRET": "x"}
        assert read_config({**settings, **given}).has_live_portal


def read_env_file() -> dict[str, str]:
    """Return the variables of einvoice.env, with the client id that an operator enters."""
    lines = (DEPLOY / "einvoice.env").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {**dict(pairs), "PORTAL_CLIENT_ID": "client"}


@dataclass(frozen=True)
class Program:
    """A command of a unit, container or pod, with its variables and the secrets that it gets.

    `folder` is where the secrets are.
    """

    name: str
    arguments: list[str]
    variables: dict[str, str]
    secrets: list[str]
    folder: str


def find_programs() -> Iterator[Program]:
    """Yield the commands of the service in all files."""
    for unit in UNITS:
        text = unit.read_text()
        own = " ".join(re.findall(r"^Environment=(.*)$", text, re.MULTILINE)).split()
        (command,) = re.findall(r"^ExecStart=\S+ \S+run\.py (.+)$", text, re.MULTILINE)
        secrets = re.findall(r"^LoadCredential=([^:]+):", text, re.MULTILINE)
        variables = {name: text for name, _, text in (pair.partition("=") for pair in own)}
        variables = {**read_env_file(), **variables}
        yield Program(unit.name, command.split(), variables, secrets, "%d")
    for name in ("migrate", "api-1", "api-2", "worker"):
        service = SERVICES[name]
        variables = {**read_env_file(), **{k: str(v) for k, v in service["environment"].items()}}
        yield Program(
            f"compose-{name}", service["command"], variables, service["secrets"], "/run/secrets"
        )
    (config,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "ConfigMap"]
    for manifest in POD_MANIFESTS:
        container = get_container(manifest)
        own = {each["name"]: each["value"] for each in container.get("env", ())}
        (mount,), (volume,) = (
            container["volumeMounts"],
            manifest["spec"]["template"]["spec"]["volumes"],
        )
        yield Program(
            manifest["metadata"]["name"],
            container["args"],
            {**config["data"], **own},
            read_secret_files()[volume["secret"]["secretName"]],
            mount["mountPath"],
        )


def read_secret_files() -> dict[str, list[str]]:
    """Return {secret of Kubernetes: its files} by the commands of the documentation."""
    text = (ROOT / "docs" / "deployment.md").read_text().replace("\\\n", " ")
    found = re.findall(r"^kubectl create secret generic (\S+) (.*)$", text, re.MULTILINE)
    return {name: re.findall(r"--from-file=secrets/(\S+)", options) for name, options in found}


@pytest.mark.parametrize("program", list(find_programs()), ids=lambda program: program.name)
async def test_command_runs_with_exactly_its_settings_and_secrets(
    program: Program, database: str, tmp_path: Path
) -> None:
    folder, log = tmp_path / "secrets", tmp_path / "log"
    folder.mkdir()
    for name in program.secrets:
        (folder / name).write_text(database if name.endswith("-url") else SECRET)
    variables = {
        name: text.replace(program.folder, str(folder)) for name, text in program.variables.items()
    }
    variables["DATABASE_DURABILITY"] = "off"  # of the server of the tests
    if program.arguments == ["migrate"]:
        done = await run_command(program.arguments, variables)
        assert (done.code, done.out) == (0, "nothing to apply\n"), done.err
        return
    port = free_port()
    ports = {"PORT": str(port), "WORKER_PORT": str(port)}
    started = ChildProcess(program.arguments, {**variables, **ports}, log, port, "/readyz")
    async with started:
        pass
    assert started.exit_code == 0


# Stops


def drain_of(environment: Any) -> float:
    names = {name: str(value) for name, value in dict(environment).items()}
    return read_config({"DRAIN_SECONDS": names.get("DRAIN_SECONDS", "")}).drain


def seconds(text: str) -> float:
    """Return a time such as 40s."""
    return float(text.removesuffix("s"))


def test_supervisors_wait_for_the_longest_stop() -> None:
    (config,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "ConfigMap"]
    for name in ("api-1", "api-2", "worker"):
        service = SERVICES[name]
        longest = drain_of(service["environment"]) + LONGEST_STOP_SECONDS
        assert seconds(service["stop_grace_period"]) > longest
    for unit in UNITS:
        for limit in re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE):
            assert int(limit) > drain_of({}) + LONGEST_STOP_SECONDS
    for manifest in POD_MANIFESTS:
        if manifest["kind"] == "Deployment":
            limit = manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            assert limit > drain_of(config["data"]) + LONGEST_STOP_SECONDS


# Health


def test_every_process_has_health_checks() -> None:
    for name in ("api-1", "api-2", "worker"):
        assert "healthcheck" not in SERVICES[name]  # The one of the image applies.
    assert SERVICES["worker"]["environment"]["WORKER_PORT"] == PORT
    deployments = [manifest for manifest in MANIFESTS if manifest["kind"] == "Deployment"]
    assert len(deployments) == 2
    for container in map(get_container, deployments):
        (port,) = container["ports"]
        variables = {one["name"]: one["value"] for one in container.get("env", ())}
        assert int(variables.get("WORKER_PORT", PORT)) == port["containerPort"]
        for probe, path in PROBES.items():
            assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}


def test_unit_of_the_worker_may_bind_its_port() -> None:
    text = (DEPLOY / "systemd" / "einvoice-worker.service").read_text()
    (port,) = re.findall(r"^Environment=WORKER_PORT=(\d+)$", text, re.MULTILINE)
    assert re.findall(r"^SocketBind(\w+=.*)$", text, re.MULTILINE) == [
        "Deny=any",
        f"Allow=tcp:{port}",
    ]


# Isolation


def test_containers_run_as_the_user_of_the_image_without_rights() -> None:
    uid, gid = map(int, USER.split(":"))
    ours = [service for service in SERVICES.values() if "einvoice" in service["image"]]
    assert len(ours) == 5
    for service in ours:
        assert service["user"] == USER and service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for manifest in POD_MANIFESTS:
        pod = manifest["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == uid
        assert pod["securityContext"]["runAsGroup"] == gid
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_only_migrations_have_the_login_of_the_owner() -> None:
    holders = {name for name, service in SERVICES.items() if "owner" in str(service)}
    assert holders == {"postgres", "migrate"}
    units = {unit.name for unit in UNITS if "owner-url" in unit.read_text()}
    assert units == {"einvoice-migrate.service"}
    kinds = {manifest["kind"] for manifest in POD_MANIFESTS if "owner" in str(manifest)}
    assert kinds == {"Job"}


def test_only_nginx_is_reachable_from_outside() -> None:
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"nginx"}
    assert COMPOSE["networks"]["database"]["internal"]


# nginx


def directive(name: str) -> str:
    """Return the value of a directive that occurs once."""
    (value,) = re.findall(rf"^\s*{name} +([^;]+);", NGINX, re.MULTILINE)
    return value


def test_limits_of_nginx_match_those_of_the_service() -> None:
    config = read_config({})
    assert directive("client_max_body_size") == f"{config.max_body_bytes // 2**20}m"
    assert f"limit of {config.max_body_bytes} bytes" in NGINX
    assert seconds(directive("client_header_timeout")) == config.head_timeout
    assert seconds(directive("proxy_send_timeout")) == config.body_timeout
    longest = config.portal_timeout.total_seconds() + config.submit_wait
    assert seconds(directive("proxy_read_timeout")) > longest
    for path in (DEPLOY / "nginx").glob("upstream-*.conf"):
        (idle,) = re.findall(r"keepalive_timeout (\d+)s", path.read_text())
        assert int(idle) < KEEPALIVE_SECONDS


def addresses(names: Sequence[str]) -> list[str]:
    """Return the addresses of services of the compose file in the network of the proxy."""
    return [SERVICES[name]["networks"]["front"]["ipv4_address"] for name in names]


def test_compose_addresses_are_those_of_nginx_and_of_the_trusted_proxy() -> None:
    upstream = (DEPLOY / "nginx" / "upstream-compose.conf").read_text()
    assert re.findall(r"server ([\d.]+):8080 ", upstream) == addresses(["api-1", "api-2"])
    for name in ("api-1", "api-2"):
        assert [SERVICES[name]["environment"]["TRUSTED_PROXIES"]] == addresses(["nginx"])
