"""The judge of growth, and the completeness of the doors."""

import inspect
from collections.abc import Callable

import pytest

from service import schema
from service.api.table import OPERATIONS
from service.portal import responses
from tests.growth.direct import READERS
from tests.growth.judge import MOST_SECONDS, REPEATS, SMALLEST, judge
from tests.growth.operations import find_operations, list_headers, make_body
from tests.growth.pages import FURTHER_FIELDS, list_routes
from tests.growth.shapes import list_body_shapes

LIMIT = 1_000_000


def at_limit(seconds: float, power: float) -> Callable[[int], float]:
    """Return a cost that is `seconds` at LIMIT and grows with a power of the size."""
    return lambda size: 0.001 + seconds * (size / LIMIT) ** power


@pytest.mark.parametrize("power", [1.5, 2, 3])
@pytest.mark.parametrize("seconds", [0.4, 5, 600])
def test_a_cost_that_grows_faster_than_its_input_fails(power: float, seconds: float) -> None:
    assert judge("door", at_limit(seconds, power), LIMIT).failure


@pytest.mark.parametrize("seconds", [0.01, 0.1, MOST_SECONDS * 0.4])
def test_a_cost_that_grows_like_its_input_passes(seconds: float) -> None:
    assert not judge("door", at_limit(seconds, 1), LIMIT).failure


def test_a_slow_linear_cost_fails() -> None:
    verdict = judge("door", at_limit(MOST_SECONDS * 2, 1), LIMIT)
    assert verdict.failure.startswith("takes more than")


def test_a_constant_cost_passes() -> None:
    assert not judge("door", lambda size: 0.05, LIMIT).failure


def test_an_input_that_the_limit_refuses_costs_nothing() -> None:
    quadratic = at_limit(0.015, 2)
    assert not judge(
        "door", lambda size: quadratic(size) if size <= LIMIT else 0.001, LIMIT
    ).failure


def test_a_door_that_fails_once_is_measured_again() -> None:
    smallest: list[int] = []

    def cost(size: int) -> float:
        if size == SMALLEST:
            smallest.append(size)
            return 0.001
        return 0.001 if len(smallest) > REPEATS else MOST_SECONDS * 4

    assert not judge("door", cost, LIMIT).failure


def test_every_schema_of_a_body_has_doors() -> None:
    assert find_operations().keys() == {each.body for each in OPERATIONS if each.body}
    assert find_operations().keys() == schema.EXAMPLES.keys()


@pytest.mark.parametrize("name", sorted(schema.EXAMPLES))
def test_every_body_has_all_members_of_its_schema(name: str) -> None:
    known = set(schema.ALL[name].get("properties", ()))
    assert known - {"submitImmediately", "isReady"} <= make_body(name).keys()


def test_every_shape_makes_an_input_of_about_its_size() -> None:
    for name, make in list_body_shapes(make_body("invoice_create"), set()):
        assert 0.4 * LIMIT < len(make(LIMIT)) < 1.7 * LIMIT, name


def test_every_reader_of_a_response_of_the_portal_has_doors() -> None:
    readers = {
        name
        for name, each in inspect.getmembers(responses, inspect.isfunction)
        if not name.startswith("_")
        and each.__module__ == responses.__name__
        and _reads_response(each)
    }
    assert readers == READERS.keys()


def _reads_response(function: Callable[..., object]) -> bool:
    """Return whether the first parameter of a function is a response of the portal."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.annotation is responses.PortalResponse


def test_every_header_that_is_read_has_doors() -> None:
    assert {"X-Forwarded-For", "If-Match", "If-None-Match", "X-Request-Id"} <= set(list_headers())


def test_fields_are_listed_only_for_routes_of_forms() -> None:
    assert FURTHER_FIELDS.keys() <= {each.path for each in list_routes() if each.method == "POST"}
