"""The mutant runner: each mutant applies to the current code, and outcomes are distinguished."""

import ast
from pathlib import Path

import pytest

from tests.harness.paths import ROOT
from tests.mutants.cases import MUTANTS, Mutant
from tests.mutants.runner import (
    BROKEN,
    KILLED,
    NOT_APPLICABLE,
    SURVIVED,
    TIMED_OUT,
    Runner,
    check,
    copy_tree,
)

CODE = "def add(a, b):\n    return a + b\n"
TESTS = """
import math
from adding import add

def test_add():
    assert add(2, 2) == 4

def test_nothing():
    assert add

def test_forever():
    while add(2, 2) != 4:
        pass
"""


def mutant(name: str, new: str, test: str, old: str = "a + b") -> Mutant:
    return Mutant(name, "adding.py", old, new, f"test_adding.py{test}")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A Runner of a small project whose tests need no database."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "adding.py").write_text(CODE)
    (base / "test_adding.py").write_text(TESTS)
    (base / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return Runner(base, tmp_path, database_url="", jobs=1, limit=60)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_to_the_code(mutant: Mutant) -> None:
    check(mutant)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_test_of_every_mutant_exists(mutant: Mutant) -> None:
    file, *parts = mutant.test.partition("[")[0].split("::")
    scope = ast.parse((ROOT / file).read_text()).body
    for part in parts:
        [found] = [node for node in scope if getattr(node, "name", None) == part]
        scope = found.body if isinstance(found, ast.ClassDef) else []


def test_mutant_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.long
@pytest.mark.parametrize(
    "mutant, outcome",
    [
        (mutant("noticed", "a * b + 1", "::test_add"), KILLED),
        (mutant("missed", "a * b", "::test_add"), SURVIVED),
        (mutant("without-its-test", "a - b", "::test_nothing"), SURVIVED),
        (mutant("not-python", "a +", "::test_add"), BROKEN),
        (mutant("unknown-test", "a - b", "::test_removed"), BROKEN),
        (mutant("other-code", "a - b", "::test_add", old="a + c"), NOT_APPLICABLE),
        (mutant("ambiguous-code", "x", "::test_add", old="a"), NOT_APPLICABLE),
        (mutant("removed-file", "a - b", "/removed.py::test_add"), NOT_APPLICABLE),
    ],
    ids=lambda value: value.name if isinstance(value, Mutant) else "",
)
async def test_each_outcome_of_a_mutant_is_recognised(
    runner: Runner, mutant: Mutant, outcome: str
) -> None:
    result = await runner.run_one(mutant)
    assert result.outcome == outcome, result.output
    assert result.is_noticed == (outcome == KILLED)
    assert (runner.base / "adding.py").read_text() == CODE
    assert not (runner.scratch / mutant.name).exists()


@pytest.mark.long
async def test_a_mutant_with_hanging_tests_is_ended_by_the_time_limit(runner: Runner) -> None:
    hasty = Runner(runner.base, runner.scratch, "", jobs=1, limit=10)
    result = await hasty.run_one(mutant("endless", "a - b", "::test_forever"))
    assert (result.outcome, result.is_noticed) == (TIMED_OUT, True)


@pytest.mark.long
async def test_tests_that_fail_without_a_mutant_are_reported(runner: Runner) -> None:
    mutants = [mutant("noticed", "a * b + 1", "::test_add")]
    assert await runner.baseline(mutants) is None
    (runner.base / "adding.py").write_text(CODE.replace("+", "-"))
    failure = await runner.baseline(mutants)
    assert failure is not None and not failure.is_noticed


def test_the_copied_tree_is_the_work_tree_without_ignored_files(tmp_path: Path) -> None:
    root, target = tmp_path / "root", tmp_path / "target"
    for name in ("kept/kept.py", "kept/ignored.pyc", ".git/config", ".venv/pyvenv.cfg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / ".gitignore").write_text(".venv/\n*.pyc\n")
    copy_tree(target, root)
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == [
        ".gitignore",
        "kept.py",
    ]
