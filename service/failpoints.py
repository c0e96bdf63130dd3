"""Named moments of a submission at which a test may end its process, or hold it up. The service puts nothing there."""

#: name -> where the process is when it passes.
NAMES = {
    "before_freeze_commit": "the bytes of a submission are written and not yet committed",
    "after_freeze_commit": "they are committed, and nothing is under way",
    "after_merge_commit": "a call of several submissions is committed in their place",
    "lock_taken": "this process alone may send the submission, and nothing says so on disk",
    "before_intent_commit": "the intent to send is written and not yet committed",
    "after_intent_commit": "it is committed, and no byte is out",
    "bytes_written": "a part of the body is out",
    "answer_read": "the portal's answer is here, or it is clear that none comes",
    "sightings_written": "the uuids of a receipt are committed, and nothing else of it",
    "before_state_commit": "a result is written and not yet committed",
    "after_state_commit": "it is committed",
    "before_reply": "the outcome is known and the client waits for it",
    "before_cancel_sent": "a cancellation is committed, and no byte is out",
    "after_cancel_answer": "the portal's answer to it is here, and nothing is written",
}

_actions = {}  # name -> callable


def set_action(name, action):
    """Has `action()` called whenever the moment passes. Raises KeyError for a name that is none."""
    NAMES[name]
    _actions[name] = action


def reach(name):
    """Says that the moment has come."""
    if name in _actions:
        _actions[name]()
