"""What an application may say of code that Headgate keeps, and of packages."""

from typing import Any

import pytest

from queries.domain.definitions.code import application_brings_code
from queries.domain.definitions.spec import ApplicationSpec, Code
from queries.domain.validation.application_rules import CodeState, code_problems, package_problems

DIGEST, COMMIT = f"sha256:{'a' * 64}", "a" * 40
THERE = CodeState(is_available=True, modules=frozenset({"job"}))


def _said(kept: CodeState = THERE, **code: Any) -> list[tuple[str, str]]:
    spec = ApplicationSpec(code=Code(**code))
    found = code_problems(spec, code_state=kept, hosts=frozenset({"git.example.org"}))
    assert all(one.way_out for one in found)
    return [(one.field, one.message) for one in found]


def test_an_upload_that_is_there_and_a_commit_of_a_listed_host_are_taken() -> None:
    assert code_problems(ApplicationSpec(), code_state=CodeState(), hosts=frozenset()) == []
    assert _said(upload=DIGEST) == []
    assert _said(git="https://git.example.org/x", commit=COMMIT, folder="jobs") == []
    assert _said(CodeState(), git="https://git.example.org/x", commit=COMMIT) == []


@pytest.mark.parametrize(
    ("code", "field", "said"),
    [
        ({}, "code", "sets no code"),
        ({"commit": COMMIT}, "code", "sets no code"),
        ({"upload": DIGEST, "git": "https://git.example.org/x"}, "code", "sets both"),
        ({"upload": "latest"}, "code.upload", "is not a valid digest"),
        ({"upload": "a" * 64}, "code.upload", "is not a valid digest"),
        ({"upload": DIGEST, "commit": COMMIT}, "code.commit", "applies only to code from git"),
        ({"upload": DIGEST, "folder": "a"}, "code.folder", "applies only to code from git"),
        ({"git": "https://git.example.org/x"}, "code.commit", "is missing"),
        ({"git": "https://else.org/x", "commit": COMMIT}, "code.git", "not an allowed git host"),
    ],
)
def test_a_fault_is_told_by_its_field(code: dict[str, str], field: str, said: str) -> None:
    ((found, message),) = _said(THERE, **code)
    assert found == field
    assert said in message


def test_an_upload_that_is_not_there_is_refused() -> None:
    assert _said(CodeState(), upload=DIGEST) == [("code.upload", "has not been uploaded.")]


def test_code_holds_no_module_that_the_driver_imports_from_elsewhere() -> None:
    ours = CodeState(is_available=True, modules=frozenset({"job", "pyspark", "queries"}))
    fields = [field for field, _ in _said(ours, upload=DIGEST)]
    assert fields == ["code.upload", "code.upload"]
    ((field, message),) = _said(
        CodeState(modules=frozenset({"py4j"})), git="https://git.example.org/x", commit=COMMIT
    )
    assert (field, "py4j" in message) == ("code.git", True)


@pytest.mark.parametrize("master", ["local[2]", "spark://a:7077", "yarn"])
def test_packages_are_for_drivers_and_for_the_executors_of_clusters(master: str) -> None:
    assert package_problems(ApplicationSpec(master=master, packages="requests==2")) == []
    (problem,) = package_problems(ApplicationSpec(master=master, packages="-e .\nrequests"))
    assert problem.field == "packages.0"


def test_code_and_packages_are_code_to_a_driver() -> None:
    code = Code(upload=DIGEST)
    assert application_brings_code(None, ApplicationSpec(code=code)) == ["code"]
    assert application_brings_code(None, ApplicationSpec(packages="x")) == ["packages"]
    assert application_brings_code(None, ApplicationSpec(packages="  ")) == []
    before = ApplicationSpec(code=code, packages="x")
    assert application_brings_code(before, before) == []
    assert application_brings_code(before, ApplicationSpec()) == ["code", "packages"]
