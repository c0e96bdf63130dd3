"""The mutants: small defects, each with the fast tests that must fail because of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect: `new` replaces `old` in `file`, where `old` occurs exactly once, and one of `tests` must fail.

    With an empty `old` the file is added: a further migration, for a defect of the schema.
    `tests` are arguments of pytest, single tests where possible, so that the whole list takes minutes.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "advisory-lock-not-asked",
        "service/keeper.py",
        "got = await sql.submission_lock_try(conn, company_id=company_id, id=submission_id)",
        "got = True",
        ("tests/test_keeper.py",),
    ),
)
