"""Texts of pages about a submission or cancellation: one sentence for each outcome.

The messages of the API are for programs, and some are fixed by the specification. A sentence
follows from the present state of the document, so that it is also true after a reload.
"""

from collections.abc import Sequence

from service.dashboard.operations import Answer
from service.dashboard.pages import TEXTS, Notice
from service.documents.states import LOCKED
from service.json_types import JsonMapping

TEXT = TEXTS["outcomes"]
#: Codes of failures whose errors are for the operator of the service. A sentence replaces them.
FOR_OPERATOR = ("sending_held", "number_at_portal", "portal_credentials_refused")
#: Codes of warnings that are for programs and for people who administer the company.
FOR_ADMINISTRATOR = ("Certificate", "UnknownMember")


def describe_notice(notice: str, record: JsonMapping, has_findings: bool) -> Notice | None:
    """Return the sentence about what an action has led to, or None for another notice.

    `notice` names the action. `record` is the document as it is now. `has_findings` is true if the
    page shows why the submission failed.
    """
    texts, status = TEXT["notices"].get(notice, {}), record["status"]
    has_failed = notice in ("submit", "save_submit") and status not in LOCKED
    if has_failed and not has_findings:
        status = "without_findings"
    text = texts.get(status, texts.get("any"))
    return text and Notice(text, "warn" if has_failed else "good")


def describe_submitting(state: str, is_held: bool) -> str:
    """Return why a submission has no outcome yet, by its state."""
    texts = TEXT["submitting"]
    return texts.get("Held" if is_held else state, texts["Sending"])


def describe_failure(action: str, answer: Answer) -> str:
    """Return why a document was not submitted, cancelled or deleted."""
    if answer.status == 412:
        return TEXTS["errors"]["changed_meanwhile"]
    return TEXT["failures"].get(action, {}).get(answer.value.get("code")) or answer.message


def describe_not_sent(last: JsonMapping) -> str:
    """Return what has become of a submission that failed, before the errors that explain it."""
    general = TEXTS["documents"]["outcomes"][last["status"]]
    if last["status"] != "NotSent" or last["code"] in FOR_OPERATOR:
        return general
    return TEXT["not_sent"].get(last["code"], general)


def explain(code: str | None, errors: Sequence[JsonMapping]) -> Sequence[JsonMapping]:
    """Return why a submission failed. A sentence replaces errors that are for the operator."""
    return [{"message": f"{TEXT['not_sent'][code]}."}] if code in FOR_OPERATOR else errors
