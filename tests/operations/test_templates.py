"""Templates: what a page was made from is freed as soon as it is rendered."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import templates

PARTS = "{% macro name() %}{{ record.name }}{% endmacro %}"
PAGE = """{% from "parts.html" import name with context %}
{% set shown = record %}
{% macro twice() %}{{ name() }}{{ shown.name }}{% endmacro %}
{{ twice() }}"""


class Record:
    """A value that can be referred to weakly, as the dictionaries of a document cannot."""

    name = "<Ali>"


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Run a test without the garbage collector."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_rendering_frees_its_values_at_once(tmp_path: Path) -> None:
    (tmp_path / "parts.html").write_text(PARTS)
    (tmp_path / "page.html").write_text(PAGE)
    environment = templates.make_environment(tmp_path, ())
    for _ in range(2):  # The templates are compiled once.
        record = Record()
        shown = weakref.ref(record)
        text = templates.render(environment, "page.html", record=record)
        assert text.strip() == "&lt;Ali&gt;" * 2
        del record
        assert shown() is None
