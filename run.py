#!/usr/bin/env python3
"""The commands: `python run.py` serves, `python run.py --help` lists the rest."""

import argparse
import os
import socket
import sys
import threading
from pathlib import Path

import asyncpg

from service import json_codec
from service.commands import audit, certificates, companies, integrations, reconcile, secrets
from service.commands.bootstrap import run, with_postgres
from service.commands.codes import import_codes
from service.commands.serve import ServeError, serve, serve_child, work
from service.config import ConfigError, read_config
from service.db.migrations import SchemaError, migrate
from service.db.statements import sql
from service.documents.signing.certificate import ISSUER_FORMS
from service.embedded_postgres.lifecycle import EmbeddedError
from service.errors import CONSTRAINTS, ApiError

KNOWN = (
    ConfigError,
    EmbeddedError,
    ServeError,
    SchemaError,
    companies.CommandError,
    ApiError,
    OSError,
)
#: What PostgreSQL refuses about a value; the database itself can be used.
REFUSED = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)
DATABASE = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ConnectionError,
    socket.gaierror,
    TimeoutError,
)


def main(arguments: list[str]) -> None:
    """Run one command. What cannot be done is said in words, with exit code 1."""
    options = _parser().parse_args(arguments)
    try:
        _refuse_bad_text(options)
        options.command(options)
    except BrokenPipeError:
        sys.exit(1)  # whoever read what we print has gone
    except REFUSED as fault:
        sys.exit(_describe_refusal(fault))
    except DATABASE as fault:
        sys.exit(f"The database of DATABASE_URL cannot be used: {_first_line(fault)}")
    except KNOWN as fault:
        sys.exit(f"{fault}")


def _refuse_bad_text(options: argparse.Namespace) -> None:
    """Raise CommandError for a text that is not UTF-8, which PostgreSQL cannot store."""
    for name, value in vars(options).items():
        if isinstance(value, str) and not json_codec.is_valid_text(value):
            raise companies.CommandError(f"--{name.replace('_', '-')} must be UTF-8 text.")


def _describe_refusal(fault: asyncpg.PostgresError) -> str:
    """Return what a refused value or a violated constraint means, in words."""
    refusal = CONSTRAINTS.get(getattr(fault, "constraint_name", None))
    return (
        refusal().message
        if refusal
        else f"The database does not accept a value: {_first_line(fault)}."
    )


def _first_line(fault):
    """Return what PostgreSQL says; its details and hints are on further lines."""
    return str(fault).partition("\n")[0] or type(fault).__name__


def _serve(options):
    config = read_config(_environ(options))
    flow = serve_child if options.child else serve
    run(flow(config, background=not options.no_background))


def _environ(options):
    workers = {"WORKERS": str(options.workers)} if options.workers else {}
    return {**os.environ, **workers}


def _work(options):
    run(work(read_config()))


def _sandbox(options):
    from service.sandbox.app import run as run_sandbox
    from service.sandbox.settings import Settings

    if options.until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    run_sandbox(Settings.from_env(os.environ))


def _end_with_stdin():
    """The process at the other end is gone, however it ended. The sandbox loses nothing by ending at once."""
    sys.stdin.buffer.read()
    os._exit(0)


def _migrate(options):
    async def applied():
        async with with_postgres(read_config()) as config:
            return await migrate(
                config.database_owner_url or config.database_url, silence=config.database_silence
            )

    for name in run(applied()) or ["nothing to apply"]:
        print(name)


def _demo(options):
    from service.commands.demo import demo

    sys.exit(run(demo(read_config(), options.company)))


def _add_company(options):
    details = {name: getattr(options, name) for name in companies.DETAILS}
    result = companies.add_company(
        read_config(), name=options.name, tin_code=options.tin, **details
    )
    print(companies.printed(run(result)))


def _verify_tin(options: argparse.Namespace) -> None:
    print(companies.printed(run(companies.verify_tin(read_config(), options.company, options.tin))))


def _share_tin(options: argparse.Namespace) -> None:
    print(companies.printed(run(companies.share_tin(read_config(), options.tin, options.note))))


def _unshare_tin(options: argparse.Namespace) -> None:
    print(companies.printed(run(companies.unshare_tin(read_config(), options.tin))))


def _add_key(options):
    print(
        companies.printed(
            run(companies.add_key(read_config(), options.company, options.name, options.expires))
        )
    )


def _add_integration_key(options):
    made = integrations.add_integration_key(
        read_config(), options.account, options.name, options.expires
    )
    print(companies.printed(run(made)))


def _add_user(options):
    facts = {name: getattr(options, name) for name in ("name", "email", "role")}
    print(companies.printed(run(integrations.add_user(read_config(), options.account, **facts))))


def _add_organization(options):
    made = integrations.add_organization(
        read_config(), options.account, options.name, options.company
    )
    print(companies.printed(run(made)))


def _revoke_key(options):
    print(companies.printed(run(companies.revoke_key(read_config(), options.key_id))))


def _set_certificate(options):
    files = options.certificate, options.key, options.password_file
    made = certificates.set_certificate(read_config(), options.company, *files, options.issuer_form)
    print(companies.printed(run(made)))


def _remove_certificate(options):
    print(companies.printed(run(certificates.remove_certificate(read_config(), options.company))))


def _audit(options):
    for entry in run(audit.audit(read_config(), options.company, options.last)):
        print(entry)


def _reseal(options):
    done = run(secrets.reseal_all(read_config()))
    print(companies.printed(done))
    sys.exit(1 if done["unopenable"] else 0)


def _sql(options):
    if options.statement not in sql.by_name:
        sys.exit(
            f"There is no statement {options.statement}. There are: {', '.join(sorted(sql.by_name))}"
        )
    print(sql.by_name[options.statement].text)


def _import_codes(options):
    print(companies.printed(run(import_codes(read_config(), options.files))))


def _reconcile(options):
    result = run(reconcile.reconcile(read_config(), options.company, options.days))
    print(companies.printed(result))
    sys.exit(1 if result["open"] or result["failed"] else 0)


def _hold_sending(options):
    print(companies.printed(run(reconcile.hold_sending(read_config(), options.reason))))


def _resolve_finding(options):
    print(
        companies.printed(run(reconcile.resolve_finding(read_config(), options.ids, options.note)))
    )


def _settle_submission(options):
    made = reconcile.settle_submission(
        read_config(), options.company, options.id, options.received, options.note
    )
    print(companies.printed(run(made)))


def _attention(options):
    print(companies.printed(run(reconcile.attention(read_config()))))


def _retry_logins(options):
    print(companies.printed(run(reconcile.retry_logins(read_config(), options.tin))))


def _parser():
    parser = argparse.ArgumentParser(prog="run.py", description="The e-invoicing service.")
    parser.set_defaults(command=_serve, workers=None, no_background=False, child=False)
    commands = parser.add_subparsers(metavar="COMMAND")

    def command(name, does, action):
        made = commands.add_parser(name, help=does, description=does)
        made.set_defaults(command=action)
        return made

    made = command("serve", "the API and the background work (what no command means)", _serve)
    made.add_argument("--workers", type=int, help="processes on the one port")
    made.add_argument("--no-background", action="store_true", help="answer requests only")
    made.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    command("worker", "the background work only", _work)
    made = command("sandbox", "the portal's stand-in, on its own", _sandbox)
    made.add_argument(
        "--until-stdin-closes", action="store_true", help="end with the process that started it"
    )
    command("migrate", "bring the database up to date, and say what was done", _migrate)
    made = command("demo", "walk the main job against the running service", _demo)
    made.add_argument("--company", type=int, help="another than the demo company")
    made = command("add-company", "make a company; prints its id", _add_company)
    made.add_argument("--name", required=True)
    made.add_argument("--tin", required=True, help="its tax identification number")
    for name in companies.DETAILS:
        made.add_argument(f"--{name.replace('_', '-')}", dest=name)
    made = command("verify-tin", "confirm that a company's TIN is its own", _verify_tin)
    made.add_argument("--company", type=int, required=True, help="the company's id")
    made.add_argument(
        "--tin", help="the TIN that was confirmed; an error if the company has another one by now"
    )
    made = command("share-tin", "allow several companies to have a TIN", _share_tin)
    made.add_argument("--tin", required=True)
    made.add_argument("--note", required=True, help="why it is shared")
    made = command("unshare-tin", "let a TIN belong to one company again", _unshare_tin)
    made.add_argument("--tin", required=True)
    made = command("add-key", "make an API key; prints it, once", _add_key)
    made.add_argument("--company", type=int, required=True, help="the company's id")
    made.add_argument("--name", default="", help="what the key is for")
    made.add_argument("--expires", metavar="ISO", help="the instant from which it no longer works")
    made = command(
        "add-integration-key",
        "make a key of the integration surface; prints it, once",
        _add_integration_key,
    )
    made.add_argument(
        "--account", required=True, help="the account's name; a new name makes an account"
    )
    made.add_argument("--name", default="", help="what the key is for")
    made.add_argument("--expires", metavar="ISO", help="the instant from which it no longer works")
    made = command("add-user", "make a user of an account; prints its id", _add_user)
    for name in ("account", "name", "email", "role"):
        made.add_argument(f"--{name}", required=True)
    made = command(
        "add-organization", "make an organization of an account; prints its id", _add_organization
    )
    for name in ("account", "name"):
        made.add_argument(f"--{name}", required=True)
    made.add_argument(
        "--company",
        type=int,
        action="extend",
        nargs="+",
        default=[],
        help="ids of the companies it has",
    )
    command(
        "revoke-key", "stop a key from working, of a company or of an account", _revoke_key
    ).add_argument("key_id")
    made = command(
        "set-certificate", "store what a company's documents are signed with", _set_certificate
    )
    made.add_argument("--company", type=int, required=True, help="the company's id")
    made.add_argument(
        "--certificate",
        type=Path,
        required=True,
        metavar="FILE",
        help="an X.509 certificate in PEM",
    )
    made.add_argument(
        "--key", type=Path, required=True, metavar="FILE", help="its RSA private key in PEM"
    )
    made.add_argument(
        "--password-file", type=Path, metavar="FILE", help="holds the password of an encrypted key"
    )
    made.add_argument(
        "--issuer-form", choices=ISSUER_FORMS, help="how signatures write the name of the issuer"
    )
    made = command(
        "remove-certificate", "remove a company's certificate and its key", _remove_certificate
    )
    made.add_argument("--company", type=int, required=True, help="the company's id")
    made = command("audit", "print who did what for a company, a JSON object a line", _audit)
    made.add_argument("--company", type=int, required=True, help="the company's id")
    made.add_argument(
        "--last",
        type=int,
        default=100,
        metavar="N",
        help="that many entries, 100 where it is not given",
    )
    command("reseal", "seal all that is kept sealed with the present SECRET_KEY", _reseal)
    command("sql", "print a named statement, for psql", _sql).add_argument("statement")
    made = command("import-codes", "load code lists as the authority publishes them", _import_codes)
    made.add_argument("files", nargs="+", metavar="FILE")
    made = command(
        "reconcile", "compare with the portal; exits with 1 if anything is found", _reconcile
    )
    made.add_argument("--company", type=int, help="one company; else all")
    made.add_argument("--days", type=int, default=1, help="how far back, at most 31")
    made = command(
        "hold-sending",
        "send nothing until each company was compared with the portal",
        _hold_sending,
    )
    made.add_argument("--reason", default="By hand.", help="shown to whoever submits meanwhile")
    made = command("resolve-finding", "settle what a comparison found", _resolve_finding)
    made.add_argument("ids", type=int, nargs="+", metavar="ID")
    made.add_argument("--note", required=True, help="what it was, and what was done about it")
    made = command(
        "settle-submission", "settle a submission that needs a person", _settle_submission
    )
    made.add_argument("id", type=int, metavar="ID")
    made.add_argument("--company", type=int, required=True, help="the company's id")
    outcome = made.add_mutually_exclusive_group(required=True)
    outcome.add_argument(
        "--received", nargs="+", metavar="UUID", help="the portal has its documents under these"
    )
    outcome.add_argument("--not-received", action="store_true", help="the portal never had it")
    made.add_argument("--note", required=True, help="how that was found out")
    command("attention", "list what waits for a person", _attention)
    made = command(
        "retry-logins", "log in again at once where the portal refused it", _retry_logins
    )
    made.add_argument("--tin", help="of one taxpayer only")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
