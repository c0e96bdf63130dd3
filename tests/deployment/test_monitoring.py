"""Alert rules, scrape configuration and dashboard: valid, and about metrics that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from service.monitoring.gauges import GAUGES
from service.monitoring.metrics import REGISTRY
from service.monitoring.watchdog import WORDING
from tests.conftest import StartService, make_company
from tests.harness.paths import ROOT
from tests.harness.processes import ChildProcess, free_port
from tests.project.test_docs import find_anchors

PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/einvoice.json").read_text())
METRIC = re.compile(r"\b((?:einvoice|process)_[a-z0-9_]+|up)\b")
API, WORKER = 'job="einvoice-api",instance="a"', 'job="einvoice-worker",instance="w"'
UP = f"up{{{WORKER}}}"
DUE = "einvoice_submissions_due_seconds"
PORTAL = "einvoice_portal_request_duration_seconds"
LAG, REQUEST = "einvoice_event_loop_lag_seconds", "einvoice_request_duration_seconds"
ATTEMPTS = "einvoice_webhook_attempt_duration_seconds_count"
JOBS = {"job": "einvoice-api", "instance": "a"}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian and Ubuntu: apt install prometheus)",
)


@dataclass(frozen=True)
class Case:
    """Series for which an alert fires after an hour, and its text. `quiet` replaces the values.

    Values are written as promtool reads them: `0+30x60` grows by 30 each minute.
    """

    series: dict[str, str]
    summary: str
    labels: dict[str, str] = field(default_factory=dict)
    quiet: dict[str, str] = field(default_factory=dict)


def make_condition(kind: str, summary: str) -> Case:
    """Return the case of a condition that has lasted for an hour at the end."""
    return Case({f'einvoice_condition_seconds{{{API},kind="{kind}"}}': "0+60x60"}, summary)


def make_attention(kind: str, summary: str) -> Case:
    """Return the case of two items that need a person."""
    name = f'einvoice_attention{{{API},kind="{kind}"}}'
    return Case({name: "2x60"}, summary, quiet={name: "0x60"})


#: Alert -> when it fires.
CASES = {
    "EinvoiceProcessDown": Case(
        {f"up{{{API}}}": "0x60"}, "einvoice-api a does not answer.", JOBS, {f"up{{{API}}}": "1x60"}
    ),
    "EinvoiceNoWorker": Case(
        {UP: "0x60"},
        "No worker answers, so nothing is sent in the background.",
        quiet={UP: "1x60"},
    ),
    "EinvoiceDatabaseUnreadable": Case(
        {f"einvoice_database_up{{{API}}}": "0x60"},
        "einvoice-api a cannot read PostgreSQL.",
        JOBS,
        {f"einvoice_database_up{{{API}}}": "1x60"},
    ),
    "EinvoiceRestarts": Case(
        {f"process_start_time_seconds{{{API}}}": "1x30 2x7 3x7 4x7 5x7"},
        "einvoice-api a was started 4 times in 30 minutes.",
        JOBS,
        {f"process_start_time_seconds{{{API}}}": "1x55 2x10"},
    ),
    "EinvoiceVersionsDiffer": Case(
        {'einvoice_build_info{version="1"}': "1x70", 'einvoice_build_info{version="2"}': "1x70"},
        "Processes of 2 versions have run together for an hour.",
        quiet={'einvoice_build_info{version="2"}': "_x70"},
    ),
    "EinvoiceMemoryHigh": Case(
        {f"process_resident_memory_bytes{{{API}}}": "800e6x60"},
        "einvoice-api a uses 800MB of memory.",
        JOBS,
        {f"process_resident_memory_bytes{{{API}}}": "100e6x60"},
    ),
    "EinvoicePoolExhausted": Case(
        {f'einvoice_pool_waiting{{{API},pool="requests"}}': "3x60"},
        "3 callers wait for the pool requests of a.",
        {**JOBS, "pool": "requests"},
        {f'einvoice_pool_waiting{{{API},pool="requests"}}': " ".join(["3", "0"] * 31)},
    ),
    "EinvoiceEventLoopLag": Case(
        {
            f'{LAG}_bucket{{{API},le="0.25"}}': "0x60",
            f'{LAG}_bucket{{{API},le="0.5"}}': "0+120x60",
            f'{LAG}_bucket{{{API},le="+Inf"}}': "0+120x60",
        },
        "The event loop of a is late by 497.5ms.",
        JOBS,
        {f'{LAG}_bucket{{{API},le="0.25"}}': "0+120x60"},
    ),
    "EinvoiceServerErrors": Case(
        {
            f'einvoice_requests_total{{{API},route="/x",status="200"}}': "0+95x60",
            f'einvoice_requests_total{{{API},route="/x",status="503"}}': "0+5x60",
        },
        "5% of the responses are server errors.",
        quiet={
            f'einvoice_requests_total{{{API},route="/x",status="503"}}': "0x60",
            f'einvoice_requests_total{{{API},route="/readyz",status="503"}}': "0+90x60",
        },
    ),
    "EinvoiceSlowRequests": Case(
        {
            f'{REQUEST}_bucket{{{API},route="/x",status="2xx",le="1.0"}}': "0x60",
            f'{REQUEST}_bucket{{{API},route="/x",status="2xx",le="2.0"}}': "0+60x60",
            f'{REQUEST}_bucket{{{API},route="/x",status="2xx",le="+Inf"}}': "0+60x60",
        },
        "One of a hundred requests takes longer than 1.99s.",
        quiet={f'{REQUEST}_bucket{{{API},route="/x",status="2xx",le="1.0"}}': "0+60x60"},
    ),
    "EinvoiceWorkOverdue": Case(
        {f'einvoice_overdue{{{API},kind="Queued"}}': "3x60"},
        "3 items of the kind Queued are overdue.",
        {"kind": "Queued"},
        {f'einvoice_overdue{{{API},kind="Queued"}}': "_x60"},
    ),
    "EinvoiceQueueOld": Case(
        {f'{DUE}{{{API},state="Queued"}}': "0+60x60"},
        "A submission in the state Queued has been due for 1h 0m 0s.",
        {"state": "Queued"},
        {f'{DUE}{{{API},state="Queued"}}': "30x60"},
    ),
    "EinvoiceNeedsPerson": make_attention("NeedsPerson", "2 submissions need manual review."),
    "EinvoiceNoOutcome": make_attention(
        "NoOutcome", "2 accepted submissions have had no outcome for a day."
    ),
    "EinvoiceFindings": make_attention("Finding", "2 differences from the portal are open."),
    "EinvoiceSendingHeld": make_attention(
        "Hold", "Sending has been held for 2 companies for 30 minutes."
    ),
    "EinvoicePortalUnreachable": make_condition(
        "PortalUnreachable", "The portal has been unreachable for 1h 0m 0s."
    ),
    "EinvoiceCredentialsRefused": make_condition(
        "CredentialsRefused", "The portal has refused the login for 1h 0m 0s."
    ),
    "EinvoiceClocksApart": make_condition(
        "ClocksApart", "The clocks of the portal and the database differ, so nothing is sent."
    ),
    "EinvoiceOpenTransaction": make_condition(
        "OpenTransaction", "A write transaction has been open for 1h 0m 0s; events wait."
    ),
    "EinvoicePortalErrors": Case(
        {
            f'{PORTAL}_count{{{API},operation="submit",outcome="ok"}}': "0+60x60",
            f'{PORTAL}_count{{{API},operation="submit",outcome="error"}}': "0+60x60",
        },
        "50% of the requests to the portal fail.",
        quiet={f'{PORTAL}_count{{{API},operation="submit",outcome="error"}}': "0+6x60"},
    ),
    "EinvoicePortalSlow": Case(
        {
            f'{PORTAL}_bucket{{{API},operation="submit",outcome="ok",le="10.0"}}': "0x60",
            f'{PORTAL}_bucket{{{API},operation="submit",outcome="ok",le="30.0"}}': "0+60x60",
            f'{PORTAL}_bucket{{{API},operation="submit",outcome="ok",le="+Inf"}}': "0+60x60",
        },
        "The portal's operation submit takes 29s.",
        {"operation": "submit"},
        {f'{PORTAL}_bucket{{{API},operation="submit",outcome="ok",le="10.0"}}': "0+60x60"},
    ),
    "EinvoicePortalQuotaExhausted": Case(
        {f'einvoice_portal_wait_seconds_total{{{WORKER},operation="submit"}}': "0+60x60"},
        "Requests have waited for the portal's limit of submit for 15 minutes.",
        {"operation": "submit"},
        {f'einvoice_portal_wait_seconds_total{{{WORKER},operation="submit"}}': "0+20x60"},
    ),
    "EinvoiceWebhooksLate": Case(
        {f"einvoice_webhook_deliveries_due_seconds{{{API}}}": "0+60x60"},
        "A webhook delivery has been due for 1h 0m 0s.",
        quiet={f"einvoice_webhook_deliveries_due_seconds{{{API}}}": "10x60"},
    ),
    "EinvoiceWebhooksFailing": Case(
        {
            f'{ATTEMPTS}{{{WORKER},outcome="delivered"}}': "0+20x90",
            f'{ATTEMPTS}{{{WORKER},outcome="timeout"}}': "0+60x90",
        },
        "75% of the webhook attempts fail.",
        quiet={f'{ATTEMPTS}{{{WORKER},outcome="timeout"}}': "0+6x90"},
    ),
}
#: A condition that has just begun.
NEW_CONDITION = "10x60"


def run_promtool(*arguments: object) -> str:
    """Return the output of promtool. Fails if it reports an error."""
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_promtool
def test_rules_and_scrape_configuration_are_valid() -> None:
    assert f"{len(RULES)} rules found" in run_promtool("check", "rules", PROMETHEUS / "alerts.yaml")
    run_promtool("check", "config", PROMETHEUS / "prometheus.yaml")


def test_every_alert_has_a_case() -> None:
    assert [rule["alert"] for rule in RULES] == list(CASES)


@needs_promtool
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_fires_and_does_not_fire(rule: dict[str, Any], tmp_path: Path) -> None:
    case = CASES[rule["alert"]]
    firing = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {"summary": case.summary, "runbook": rule["annotations"]["runbook"]},
    }
    quiet = case.quiet or dict.fromkeys(case.series, NEW_CONDITION)
    tests = [
        _make_test(rule, case.series, [firing]),
        _make_test(rule, {**case.series, **quiet}, []),
    ]
    text = {"rule_files": [str(PROMETHEUS / "alerts.yaml")], "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(text))
    assert "SUCCESS" in run_promtool("test", "rules", tmp_path / "test.yaml")


def _make_test(rule: dict[str, Any], series: dict[str, str], expected: list[Any]) -> dict[str, Any]:
    """Return a test of promtool that evaluates a rule after an hour."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": "60m", "alertname": rule["alert"], "exp_alerts": expected}
        ],
    }


def test_every_alert_has_a_runbook() -> None:
    anchors = find_anchors("docs/operations.md")
    for rule in RULES:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/operations.md" and anchor in anchors, rule["alert"]
        assert anchor == rule["alert"].lower()


def test_alerts_name_kinds_of_conditions() -> None:
    kinds = {kind for rule in RULES for kind in re.findall(r'kind="(\w+)"', rule["expr"])}
    assert kinds and kinds < WORDING.keys()


# Metrics


def find_expressions(value: Any) -> Iterator[str]:
    """Yield the expressions of a dashboard's panels and variables."""
    if isinstance(value, dict):
        yield from (value[name] for name in ("expr", "query") if isinstance(value.get(name), str))
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from find_expressions(member)


async def read_names(url: str) -> set[str]:
    """Return the names of samples that a process has, or can have."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as response:
        types = re.findall(r"^# TYPE (\w+) (\w+)$", await response.text(), re.MULTILINE)
    suffixes = {"histogram": ("_bucket", "_count", "_sum")}
    return {f"{name}{suffix}" for name, kind in types for suffix in suffixes.get(kind, ("",))}


async def test_alerts_and_dashboard_name_metrics_that_exist(
    start: StartService, environment: dict[str, str], tmp_path: Path
) -> None:
    api = await start(await make_company(environment), background=False)
    port = free_port()
    variables = {**environment, "WORKER_PORT": str(port)}
    async with ChildProcess(["worker"], variables, tmp_path / "log", port, "/readyz") as worker:
        known = await read_names(worker.base) | await read_names(str(api.make_url("/"))[:-1])
    for texts in ([rule["expr"] for rule in RULES], list(find_expressions(DASHBOARD))):
        named = {name for text in texts for name in METRIC.findall(text)}
        assert len(named) > 10 and named - known - {"up"} == set()


def test_every_metric_is_described() -> None:
    text = (ROOT / "docs" / "observability.md").read_text()
    counted = {sample.name for sample in REGISTRY.collect()}
    own = {name for name in counted if name.startswith("einvoice_")} | GAUGES.keys()
    assert [name for name in sorted(own) if f"`{name}" not in text] == []


def test_panels_of_the_dashboard_have_ids_titles_and_places() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    for panel in panels:
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
