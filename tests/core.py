"""The tests that `make test` runs: those that notice a mutant, and all that are quick.

They are derived, not chosen: a test that a mutant names is the one that notices it.
"""

from collections.abc import Iterable

import pytest

from tests.mutants.cases import MUTANTS

#: Fixtures that start a server or a service. `api` and `company` do so when the test runs.
SLOW = {"api", "cluster", "company", "own_context", "portal", "sandbox", "start"}
SPECIFICATION = ("tests/api/test_specification.py", "tests/api/test_specification_rules.py")
#: Folders and files whose tests start processes of their own, or measure.
PROCESSES = (
    "tests/chaos/",
    "tests/dashboard/test_print_page.py",
    "tests/deployment/",
    "tests/growth/",
    "tests/operations/",
    "tests/sandbox/test_sandbox_faults.py",
    "tests/submission/test_crash.py",
)


def mark_core(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that a mutant names, those without a service, and the specification's."""
    named = {mutant.test for mutant in MUTANTS}
    for item in items:
        if item.get_closest_marker("long") is None and (_names(item, named) or _is_quick(item)):
            item.add_marker("core")


def _names(item: pytest.Item, named: set[str]) -> bool:
    """Return whether a mutant names the test, its function or its file."""
    file, _, function = item.nodeid.partition("::")
    return not named.isdisjoint((item.nodeid, f"{file}::{function.partition('[')[0]}", file))


def _is_quick(item: pytest.Item) -> bool:
    if item.nodeid.startswith(SPECIFICATION):
        return True
    fixtures = getattr(item, "fixturenames", ())
    return SLOW.isdisjoint(fixtures) and not item.nodeid.startswith(PROCESSES)
