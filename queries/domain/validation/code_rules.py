"""Validate an application's uploaded or git code, and its packages."""

from dataclasses import dataclass

from headgate_ground.packages import OURS
from queries.domain.code import requirements
from queries.domain.code.digests import sha256_of
from queries.domain.code.git_references import git_problems
from queries.domain.definitions.spec import ApplicationSpec, Code
from queries.domain.errors import Problem

#: The packages that share a driver's import path with users' code: ours, Spark's and py4j.
RESERVED_MODULES = frozenset(
    {
        *OURS,
        "examples",
        "tests",
        "benchmarks",
        "manage",
        "pyspark",
        "py4j",
    }
)
#: Reported for a module that a definition refers to although it has no code.
WITHOUT_CODE = "cannot be found because the application has no code."


@dataclass(frozen=True, slots=True)
class CodeState:
    """What is known about the code that a definition refers to."""

    is_available: bool = False  # it was uploaded or fetched
    modules: frozenset[str] = frozenset()  # names of the modules and packages directly in it


NO_CODE = CodeState()


def code_problems(
    spec: ApplicationSpec, *, code_state: CodeState, hosts: frozenset[str]
) -> list[Problem]:
    """Return what is wrong with an upload or a reference; `hosts` are those listed by an admin."""
    code = spec.code
    if code is None:
        return []
    if bool(code.upload) == bool(code.git):
        message = "sets both an upload and a git repository." if code.upload else "sets no code."
        way_out = 'Write {"upload": "sha256:…"} or {"git": "https://…", "commit": "…"}.'
        return [Problem("code", "", message, way_out)]
    problems = _upload_problems(code, code_state) if code.upload else []
    if code.git:
        problems = git_problems(code.git, code.commit, code.folder, hosts=hosts)
    field = "code.upload" if code.upload else "code.git"
    return problems + reserved(field, code.upload or code.git, code_state.modules)


def _upload_problems(code: Code, code_state: CodeState) -> list[Problem]:
    problems = [
        Problem(f"code.{name}", value[:200], "applies only to code from git.", "Remove it.")
        for name, value in (("commit", code.commit), ("ref", code.ref), ("folder", code.folder))
        if value
    ]
    if sha256_of(code.upload) is None:
        way_out = "Write sha256: and 64 hexadecimal digits, as returned by POST code/."
        problems.append(Problem("code.upload", code.upload, "is not a valid digest.", way_out))
    elif not code_state.is_available:
        way_out = "Upload the code with POST code/, then use the digest it returns."
        problems.append(Problem("code.upload", code.upload, "has not been uploaded.", way_out))
    return problems


def reserved(field: str, value: str, modules: frozenset[str]) -> list[Problem]:
    """Return a problem for each module that a driver imports from elsewhere."""
    return [
        Problem(
            field,
            value,
            f"contains a module named {name}, but the driver imports {name} from elsewhere.",
            f"Rename {name}, or choose a subfolder.",
        )
        for name in sorted(modules & RESERVED_MODULES)
    ]


def package_problems(spec: ApplicationSpec) -> list[Problem]:
    """Return what is wrong with the packages that an application requires."""
    return list(requirements.read(spec.packages).problems)
