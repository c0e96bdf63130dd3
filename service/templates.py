"""HTML pages from the templates of a folder."""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jinja2
from jinja2.runtime import Context


class _Context(Context):
    """The values of a template while it is rendered. Templates import others `with context`.

    Macros refer to their context and it to them, so that only the garbage collector could free the
    values: with a document of 1,000 lines it would stop the process for tenths of a second.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _contexts.get().append(self)


#: The contexts of the template that is being rendered, and of those that it imports.
_contexts: ContextVar[list[_Context]] = ContextVar("contexts")


def make_environment(
    folder: Path, filters: Iterable[Callable[..., object]], **values: object
) -> jinja2.Environment:
    """Return the environment of the templates in a folder. All of them see `values`.

    A filter has the name of its function.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.context_class = _Context
    environment.filters.update((each.__name__, each) for each in filters)
    environment.globals.update(values)
    return environment


def render(environment: jinja2.Environment, template: str, **values: object) -> str:
    """Return the text of a template, and free its values."""
    contexts: list[_Context] = []
    _contexts.set(contexts)
    try:
        return environment.get_template(template).render(values)
    finally:
        for context in contexts:
            context.parent.clear()
            context.vars.clear()
