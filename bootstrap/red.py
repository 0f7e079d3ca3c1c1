"""Record, as a pytest plugin for `sabotage.py`, each test's result and whether an assertion failed.

Before the first test, the plugin checks whether the program starts.
"""

import importlib
import json
import os
from pathlib import Path

import pytest

#: Variable with the path of the file for the verdicts, as {test id: verdict}.
VERDICTS = "SABOTAGE_VERDICTS"
#: Variable with the entry modules of a host's programs, separated by spaces.
PROGRAMS = "SABOTAGE_PROGRAMS"
PASSED, ASSERTION, SKIPPED = "passed", "failed by its assertion", "skipped"
_NOT_RAISED = "DID NOT RAISE"

_verdicts: dict[str, str] = {}


def pytest_sessionstart() -> None:
    """Run the same checks as `manage.py`, and import each program; exit on failure."""
    from django.core.management import call_command

    try:
        call_command("check", verbosity=0)
        for name in os.environ[PROGRAMS].split():
            importlib.import_module(name)
    except Exception as error:
        _verdicts[""] = f"the program does not start: {type(error).__name__}: {error}"
        _write()
        pytest.exit(_verdicts[""], returncode=1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> None:
    """Record the result of a test phase; the first phase that did not pass counts."""
    outcome = verdict(call.excinfo, call.when, item.path)
    if _verdicts.get(item.nodeid, PASSED) == PASSED:
        _verdicts[item.nodeid] = outcome


def pytest_sessionfinish() -> None:
    """Write the verdicts."""
    _write()


def _write() -> None:
    Path(os.environ[VERDICTS]).write_text(json.dumps(_verdicts))


def verdict(raised: "pytest.ExceptionInfo[BaseException] | None", phase: str, test: Path) -> str:
    """Return a phase's verdict on its test; only an assertion in the test's own file counts.

    An assertion elsewhere comes from a helper's timeout or from the program itself.
    """
    if raised is None:
        return PASSED
    if isinstance(raised.value, pytest.skip.Exception):
        return SKIPPED
    if phase == "call" and _is_assertion(raised.value, raised, test):
        return ASSERTION
    return f"{phase}: {raised.typename}: {str(raised.value).partition(chr(10))[0][:200]}"


def _is_assertion(
    error: BaseException, raised: "pytest.ExceptionInfo[BaseException]", test: Path
) -> bool:
    if isinstance(error, BaseExceptionGroup):  # Hypothesis found several
        return all(
            _is_assertion(exception, pytest.ExceptionInfo.from_exception(exception), test)
            for exception in error.exceptions
        )
    if isinstance(error, pytest.fail.Exception):
        return str(error).startswith(_NOT_RAISED)
    if not isinstance(error, AssertionError):
        return False
    return Path(raised.traceback[-1].path) == test
