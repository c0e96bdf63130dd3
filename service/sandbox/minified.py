"""A document's own text: minified, a part of it, all but some members of it. Portal: 11.2

What is signed is text: numbers, the order of members and repeated names stay as they were sent.
"""

import json
import re
from json.decoder import scanstring

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]+')
ESCAPE = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u\w{4}|\\.", re.ASCII)
DECODER = json.JSONDecoder()


def minify(text):
    """JSON text without white space outside strings, and with no character beyond ASCII escaped."""
    return "".join(
        ESCAPE.sub(spelled_out, token) if "\\u" in token else token for token in TOKEN.findall(text)
    )


def spelled_out(escape):
    character = json.loads(f'"{escape[0]}"')
    return escape[0] if character.isascii() else character


def without(text, names):
    """The minified text of a document, less those members of its invoice."""
    (start, end), *_ = places(text, "Invoice")
    kept = [text[first:last] for name, first, _, last in members(text, start) if name not in names]
    return f"{text[:start]}{{{','.join(kept)}}}{text[end:]}"


def parts(text, path):
    """The text of every array entry at the path, which starts at the root of the minified document."""
    return [text[start:end] for start, end in places(text, path)]


def places(text, path, at=0):
    """(start, end) of every array entry at the path below the object that starts at `at`."""
    name, _, rest = path.partition(".")
    # Of a repeated name the last, as readers do
    values = {each: value for each, _, value, _ in members(text, at)}
    found = values.get(name)
    if found is None or text[found] != "[":
        return
    for start, end in elements(text, found):
        if not rest:
            yield start, end
        elif text[start] == "{":
            yield from places(text, rest, start)


def members(text, at):
    """(name, start, start of the value, end) of each member of the object that starts at `at`."""
    at += 1
    while text[at] != "}":
        name, colon = scanstring(text, at + 1)
        end = DECODER.raw_decode(text, colon + 1)[1]
        yield name, at, colon + 1, end
        at = end + (text[end] == ",")


def elements(text, at):
    """(start, end) of each element of the array that starts at `at`."""
    at += 1
    while text[at] != "]":
        end = DECODER.raw_decode(text, at)[1]
        yield at, end
        at = end + (text[end] == ",")
