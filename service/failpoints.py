"""Failpoints: named steps at which a test may stop or pause the process."""

from collections.abc import Callable

#: name -> the state of the process at the failpoint, of a submission
NAMES = {
    "before_freeze_commit": "the bytes of a submission are written and not yet committed",
    "after_freeze_commit": "they are committed, and no request is running",
    "after_merge_commit": "a submission that merges several others is committed in their place",
    "lock_taken": "the process holds the submission's lock, of which there is no row",
    "before_intent_commit": "the intent to send is written and not yet committed",
    "after_intent_commit": "it is committed, and no byte was sent",
    "bytes_written": "a part of the body was sent",
    "answer_read": "the portal's response was read, or there will be none",
    "sightings_written": "the uuids of a receipt are committed, and nothing else of it",
    "before_state_commit": "a result is written and not yet committed",
    "after_state_commit": "it is committed",
    "before_reply": "the outcome is known and the client waits for it",
    "before_cancel_sent": "a cancellation is committed, and no byte was sent",
    "after_cancel_answer": "the portal's response to it was read, and nothing is written",
}
#: The same of the move of a company to another cell, in the order of its steps.
MOVES = {
    "move_draining": "a company that is moved to another cell begins no new work",
    "move_held": "nothing of the company can be written any more",
    "move_arriving": "the other cell rejects changes to the company's rows, and has none",
    "move_filled": "all rows are written in the other cell, and not yet compared",
    "move_copied": "they are compared",
    "move_moved": "the company is not active in any cell",
    "move_routed": "its requests are routed to the other cell",
    "move_ended": "it is active in a cell, and triggers there may still reject its changes",
    "move_released": "its changes are accepted in the other cell",
}

_actions: dict[str, Callable[[], object]] = {}


def set_action(name: str, action: Callable[[], object]) -> None:
    """Call `action` whenever the failpoint is reached. Raises KeyError for an unknown name."""
    {**NAMES, **MOVES}[name]
    _actions[name] = action


def reach(name: str) -> None:
    """Run the action of a failpoint, if a test has set one."""
    if name in _actions:
        _actions[name]()
