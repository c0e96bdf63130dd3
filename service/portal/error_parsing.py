"""Reads the bodies of the portal's errors, in any of its dialects. No I/O, no clock."""

import re
from itertools import islice
from typing import Any

MOST_TEXT = 2000  # characters of one text
MOST_ERRORS = 200  # entries of one list of errors

#: Codes that decide what happens next; they outrank a general code that stands around them. Portal:
#: 8.4
DECISIVE = {
    name.lower(): name
    for name in (
        "OperationPeriodOver",
        "IncorrectState",
        "ActiveReferencingDocuments",
        "IncorrectSubmitter",
        "DuplicateSubmission",
        "MaximumSizeExceeded",
        "BadStructure",
    )
}

#: The live portal says IncorrectSubmitter in these words, under a general code. Portal: 4.3
WRONG_SUBMITTER = "authenticated tin and documents tin"

#: Members of the framework's own answer, lower case. Portal: 8.3
PROBLEM_DETAILS = {"type", "title", "status", "traceid"}
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def flatten_error(error):
    """The innermost entries of an error in any dialect: [{code, path, message}]. Portal: 8.1, 8.2, 8.3

    Takes a whole body, the object under its `error`, or a list of these; anything else has no entries.
    """
    return list(islice(_leaves(error), MOST_ERRORS))


def authority_code(error):
    """The code that decides, else the first, wherever it stands; None when there is none. Portal: 6"""
    codes = list(islice(_codes(error), MOST_ERRORS))
    decisive = [DECISIVE[code.lower()] for code in codes if code.lower() in DECISIVE]
    if any(WRONG_SUBMITTER in entry["message"].lower() for entry in flatten_error(error)):
        decisive.append("IncorrectSubmitter")
    return next(iter(decisive + codes), None)


def clean_text(text):
    """The text without NUL and unpaired surrogates, at most MOST_TEXT characters of it."""
    return _UNSTORABLE.sub("", text)[:MOST_TEXT]


def is_not_found(body: Any) -> bool:
    """Return whether a body is a "not found" in one of the portal's three forms."""
    if not isinstance(body, dict):
        return False
    error = fold_members(body).get("error")
    if "notfound" in {code.lower() for code in _codes(error)}:
        return True
    depths = [fold_members(each) for each in (body, error) if isinstance(each, dict)]
    return any(each.keys() >= PROBLEM_DETAILS and each["status"] == 404 for each in depths)


def login_errors(members, body):
    """OAuth's `error` is a text, and its description stands beside it. Portal: 2.2"""
    code = members.get("error")
    if not isinstance(code, str):
        return flatten_error(body)
    return [_entry(code, "", members.get("error_description"))]


def _leaves(node):
    if isinstance(node, list):
        for child in node:
            yield from _leaves(child)
    if not isinstance(node, dict):
        return
    node = fold_members(node)
    deeper = False
    for entry in _inner_leaves(node):
        deeper = True
        yield entry
    code, message = _code(node), _message(node)
    if not deeper and (code or message):
        yield _entry(code, node.get("propertypath"), message)


def _inner_leaves(node):
    for child in _children(node):
        yield from _leaves(child)
    fields = node.get("errors")  # problem details: field -> messages
    for name, messages in fields.items() if isinstance(fields, dict) else ():
        for message in messages if isinstance(messages, list) else [messages]:
            yield _entry(None, name, message)


def _codes(node):
    if isinstance(node, list):
        for child in node:
            yield from _codes(child)
    if isinstance(node, dict):
        node = fold_members(node)
        if code := _code(node):
            yield code
        for child in _children(node):
            yield from _codes(child)


def _children(node):
    return [
        node[name]
        for name in ("error", "details", "innererror")
        if isinstance(node.get(name), (dict, list))
    ]


def _code(node):
    for code in (node.get("code"), node.get("errorcode")):
        if type(code) in (str, int) and str(code).strip():
            return clean_text(str(code).strip())
    return None


def _message(node):
    texts = (node.get("message"), node.get("error"), node.get("title"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def _entry(code, path, message):
    texts = [clean_text(text).strip() if isinstance(text, str) else "" for text in (path, message)]
    return {"code": clean_text(code) if code else None, "path": texts[0], "message": texts[1]}


def fold_members(members):
    """The members under lower-case names, since the portal's casing varies; of two, one that is not null. Portal: 15"""
    folded = {}
    for name, value in members.items():
        if folded.get(name.lower()) is None:
            folded[name.lower()] = value
    return folded


def clean_json(value):
    """A JSON value whose every text is cleaned and whose lists are capped."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_json(item) for item in value[:MOST_ERRORS]]
    if isinstance(value, dict):
        return {
            clean_text(name): clean_json(item) for name, item in list(value.items())[:MOST_ERRORS]
        }
    return value
