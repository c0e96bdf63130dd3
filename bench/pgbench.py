"""Run the statements of the service with pgbench, without the service."""

import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from programs import ProgramError, find_program, run_program
from wrk import LoadResult

from service.api.records import BUDGET_BYTES
from service.db.pool import SESSION
from service.db.statements import Statement, sql

EXTRA_SECONDS = 30
#: The columns of the body of create_requests that the service computes, as SQL.
COLUMNS = """
json_build_object(
  'code_year', extract(year from now()), 'issue_date', now(),
  'net_amount', 485.00, 'excluding_tax', 485.00, 'including_tax', 523.80,
  'payable_amount', 523.80, 'prepaid_amount', 0, 'taxes', '[]'::json)
"""
_COMMENT = re.compile(r"--[^\n]*\n")
_PARAMETER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class Script:
    """A script of pgbench and the values of its variables (`-D`)."""

    text: str
    variables: dict[str, str]


@dataclass(frozen=True, slots=True)
class Turn:
    """Companies in turn: the first of consecutive ids, and their number."""

    first: int
    count: int

    @property
    def commands(self) -> str:
        """The commands that choose the next company of a client."""
        return (
            "\\set n :n + 1\n"
            f"\\set place (:client_id + :n) % {self.count}\n"
            f"\\set company {self.first} + :place\n"
        )


@dataclass(frozen=True, slots=True)
class Transaction:
    """A run of a script: when it ended, in seconds since 1970, and its duration."""

    ended: float
    milliseconds: float


def write_script(query: str, statement: Statement, values: dict[str, str], prepare: str) -> str:
    """Return a script that sends a query of a statement, as the service does for one request.

    `values` are SQL expressions or variables of pgbench, `prepare` has its \\set commands.
    """
    text = _COMMENT.sub("", query)  # Comments may contain names of variables.
    filled = _PARAMETER.sub(lambda found: values[statement.variables[int(found[1]) - 1]], text)
    return f"{prepare}{filled};\n"


def create_script(turn: Turn, body: str, code: int) -> Script:
    """Return the script that creates invoices with codes from `code` on."""
    values = {
        "company_id": ":company",
        "body": "replace(:body::text, '\"code\": 0', '\"code\": ' || :code::text)",
        "columns": COLUMNS,
        "actor": "'key abc'",
        "request_id": "'abc'",
        "client_address": "'127.0.0.1'",
    }
    prepare = f"{turn.commands}\\set code {code} + :client_id * 1000000 + :n\n"
    statement = sql.invoice_insert
    text = write_script(statement.query, statement, values, prepare)
    return Script(text, {"body": body, "n": "0"})


def get_script(turn: Turn, first_id: int, invoices: int) -> Script:
    """Return the script that gets random invoices. Each company has as many, with ids in a row."""
    statement = sql.invoice_get
    values = {"company_id": ":company", "id": ":id"}
    last = first_id + invoices - 1
    prepare = f"{turn.commands}\\set id :place * {invoices} + random({first_id}, {last})\n"
    return Script(write_script(statement.isolated, statement, values, prepare), {"n": "0"})


def list_script(turn: Turn) -> Script:
    """Return the script that reads the first page of a list."""
    statement = sql.invoice_page
    values = {"company_id": ":company", "per_page": ":most", "offset": ":from", "budget": ":size"}
    text = write_script(statement.isolated, statement, values, turn.commands)
    sizes = {"most": "10", "from": "0", "size": str(BUDGET_BYTES)}
    return Script(text, {"n": "0", **sizes})


async def run_pgbench(
    url: str, script: Script, seconds: float, connections: int
) -> list[Transaction]:
    """Run a script for some seconds. Raises ProgramError if a statement failed."""
    with tempfile.TemporaryDirectory(prefix="pgbench-") as home:
        path = Path(home, "script.sql")
        path.write_text(script.text)
        command = [
            find_program("pgbench"),
            *("-M", "prepared", "-n", "-c", str(connections), "-j", "1"),
            *("-T", str(round(seconds)), "-f", str(path), "-l", f"--log-prefix={home}/log"),
            *(f"-D{name}={value}" for name, value in script.variables.items()),
            url,
        ]
        settings = {name: value.replace(" ", "\\ ") for name, value in SESSION.items()}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        output = await run_program(command, seconds + EXTRA_SECONDS, {"PGOPTIONS": options})
        transactions = list(_read_transactions(Path(home)))
    if not transactions or re.search(r"failed transactions: [1-9]", output):
        raise ProgramError(f"pgbench:\n{output[-2000:]}")
    return transactions


def _read_transactions(home: Path) -> Iterator[Transaction]:
    """Yield the transactions of the logs: microseconds in column 3, the end in columns 5 and 6."""
    for path in home.glob("log.*"):
        for line in path.read_text().splitlines():
            columns = line.split()
            yield Transaction(
                int(columns[4]) + int(columns[5]) / 1e6,
                int(columns[2]) / 1000,
            )


def summarise(transactions: Iterable[Transaction], began: float) -> LoadResult:
    """Return the result of the transactions that ended after an instant."""
    counted = [each for each in transactions if each.ended > began]
    times = sorted(each.milliseconds for each in counted)
    seconds = max(each.ended for each in counted) - began
    p50, p99 = (times[int(len(times) * part)] for part in (0.5, 0.99))
    return LoadResult(len(times), seconds, p50, p99)
