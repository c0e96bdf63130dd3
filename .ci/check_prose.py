"""Check the prose of the project against a list of words and forms that it does not use.

Prose is: docstrings, comments and messages of Python files, names of tests, comments of SQL files,
descriptions of JSON schemas, and Markdown. Lines of Markdown outside of tables and code are short
enough to read and to compare. Prints each finding as path:line, and the number of findings per
1,000 words. Exits with 1 if there is a finding.

    python .ci/check_prose.py [FILE OR FOLDER ...]
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("service", "sql", "schemas", "tests", "bench", "deploy", "docs", ".ci")
FILES = ("run.py", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")
INSTALLED = {".venv", "node_modules"}  # packages of others

#: Archaic words and phrases, and metaphors for which a standard term exists.
WORDS = (
    "anew",
    "be had",
    "bell",
    "beside",
    "come to",
    "comes to",
    "courier",
    "desk",
    "ears",
    "gate",
    "had better",
    "heed",
    "heeds",
    "held against",
    "house",
    "keeper",
    "lest",
    "let go",
    "mend",
    "mends",
    "nobody",
    "of ours",
    "says nothing",
    "stands",
    "stood",
    "thereby",
    "told",
    "twin",
    "twins",
    "wall",
    "walls",
    "whatever",
    "whoever",
    "whose turn",
    "wish",
    "wishes",
)
FORBIDDEN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
#: Words that only names do not use: there is a standard term, or they say too little.
NAME_WORDS = ("actors", "grounds?", "kit", "looks", "proofs?", "season", "settlements", "stage")
FORBIDDEN_NAMES = re.compile(rf"\b(?:{'|'.join((*WORDS, *NAME_WORDS))})\b", re.IGNORECASE)
CAPITAL = re.compile(r"_|(?<=[a-z])(?=[A-Z])")
#: First words that make a docstring a clause instead of a summary.
OPENINGS = re.compile(r"(?:What|Whether|As|Of|For)\b")
LONGEST_TEST_NAME = 80
LONGEST_LINE = 200  # of Markdown

#: Permitted uses of the words: names, and data of tests.
ALLOWED = re.compile(r"in-house|house number|House, |MAKEFILE_LIST")


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of prose at a line of a file, or the words of a name.

    `is_docstring`: it documents a definition.

    `length` is that of the line with its code, for lines of Markdown outside of tables.
    """

    path: Path
    line: int
    text: str
    is_docstring: bool = False
    is_name: bool = False
    length: int = 0


def python_texts(path: Path) -> Iterator[Text]:
    """Yield the docstrings, comments and messages of a Python file, and the names of its tests."""
    source = path.read_text()
    nodes = list(ast.walk(ast.parse(source)))
    docstrings: set[ast.expr] = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and (text := ast.get_docstring(node, clean=False)):
                docstrings.add(first.value)
                yield Text(path, first.lineno, text, is_docstring=True)
            name = "" if isinstance(node, ast.Module) else node.name
            if name.startswith("test_"):
                yield Text(path, node.lineno, name.replace("_", " "))
    for node in nodes:
        if not isinstance(node, ast.Constant) or node in docstrings:
            continue
        if isinstance(node.value, str) and node.value.count(" ") > 1:
            yield Text(path, node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield _read_name(path, token.start[0], token.string)
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], token.string.lstrip("#: "))


def _read_name(path: Path, line: int, name: str) -> Text:
    return Text(path, line, CAPITAL.sub(" ", name), is_name=True)


def sql_texts(path: Path) -> Iterator[Text]:
    """Yield the comments of an SQL file, and the texts that describe its objects."""
    source = path.read_text()
    for found in re.finditer(r"-- name: (\w+)|(?:table|function) (\w+)|^  (\w+) \w", source, re.M):
        line = source.count("\n", 0, found.start()) + 1
        yield _read_name(path, line, found[1] or found[2] or found[3])
    for found in re.finditer(
        r"--(?! name:)(.*)|(?:comment on .*?is|call describe\('\w+',)\s+'((?:[^']|'')*)'", source
    ):
        line = source.count("\n", 0, found.start()) + 1
        yield Text(path, line, found[1] or found[2] or "")


def markdown_texts(path: Path) -> Iterator[Text]:
    """Yield the lines of a Markdown file outside of code blocks."""
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            length = 0 if line.lstrip().startswith("|") else len(line)
            yield Text(path, number, re.sub(r"`[^`]*`", "", line), length=length)


def plain_texts(path: Path) -> Iterator[Text]:
    """Yield the lines of any other file."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        yield Text(path, number, line)


READERS: dict[str, Callable[[Path], Iterator[Text]]] = {
    ".py": python_texts,
    ".sql": sql_texts,
    ".md": markdown_texts,
    ".json": plain_texts,
    ".csv": plain_texts,
}


def find_texts() -> Iterator[Text]:
    """Yield the prose of the project."""
    paths = [ROOT / name for name in FILES]
    for folder in FOLDERS:
        paths += sorted((ROOT / folder).rglob("*"))
    for path in paths:
        if INSTALLED.intersection(path.parts[len(ROOT.parts) :]):
            continue
        reader = plain_texts if path.name == "Makefile" else READERS.get(path.suffix)
        is_data = path.suffix in (".json", ".csv") and not (
            path.parent.name in ("schemas", "examples", "texts") or path.with_suffix(".py").exists()
        )
        if path.is_file() and reader:
            yield _read_name(path, 1, path.stem)
        if path.is_file() and reader and not is_data and path != Path(__file__).resolve():
            yield from reader(path)


def find_violations(text: Text) -> Iterator[str]:
    """Yield a description of each violation in a text."""
    forbidden = FORBIDDEN_NAMES if text.is_name else FORBIDDEN
    for found in forbidden.finditer(ALLOWED.sub("", text.text)):
        yield f"the word {found[0]!r}"
    if text.is_docstring and OPENINGS.match(text.text.strip()):
        yield f"a docstring that begins with {text.text.split()[0]!r}"
    is_python = text.path.suffix == ".py"
    if is_python and text.text.startswith("test ") and len(text.text) > LONGEST_TEST_NAME:
        yield f"a test name of {len(text.text)}"
    if text.length > LONGEST_LINE:
        yield f"a line of {text.length} characters"


def main() -> int:
    """Print the findings, and their number per 1,000 words."""
    words = count = 0
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    for text in find_texts():
        if chosen and not any(text.path.is_relative_to(path) for path in chosen):
            continue
        words += len(text.text.split())
        for violation in find_violations(text):
            count += 1
            print(f"{text.path.relative_to(ROOT)}:{text.line}: {violation}")
    rate = 1000 * count / max(words, 1)
    print(f"{count} findings in {words} words: {rate:.2f} per 1,000", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
