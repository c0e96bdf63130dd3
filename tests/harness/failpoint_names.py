"""The failpoints of the service: steps at which a test may stop or pause the process."""

#: name -> the state of the process at the failpoint, of a submission
NAMES = {
    "before_queued_commit": "the bytes of a submission are written and not yet committed",
    "after_queued_commit": "they are committed, and no request is running",
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
