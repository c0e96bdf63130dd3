"""Failpoints: named steps at which a test may stop or pause the process."""

from collections.abc import Callable

#: name -> what is called whenever the failpoint is reached
actions: dict[str, Callable[[], object]] = {}


def reach(name: str) -> None:
    """Run the action of a failpoint, if a test has set one."""
    if name in actions:
        actions[name]()
