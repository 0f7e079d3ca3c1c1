"""A plugin of pytest for `sabotage.py`: how each test ended, and whether an assertion ended it.

Before the first test it looks whether the program starts.
"""

import importlib
import json
import os
from pathlib import Path

import pytest

#: Names the file that the verdicts are written to, as {id of the test: verdict}.
VERDICTS = "SABOTAGE_VERDICTS"
#: Names the modules that the programs of a host begin with, with spaces between.
PROGRAMS = "SABOTAGE_PROGRAMS"
PASSED, ASSERTION, SKIPPED = "passed", "failed by its assertion", "skipped"
_NOT_RAISED = "DID NOT RAISE"

_verdicts: dict[str, str] = {}


def pytest_sessionstart() -> None:
    """Run the checks that `manage.py` runs, and import each program; end here where that fails."""
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
    """Note how a phase of a test ended; the first that did not pass counts."""
    found = verdict(call.excinfo, call.when, item.path)
    if _verdicts.get(item.nodeid, PASSED) == PASSED:
        _verdicts[item.nodeid] = found


def pytest_sessionfinish() -> None:
    """Write the verdicts."""
    _write()


def _write() -> None:
    Path(os.environ[VERDICTS]).write_text(json.dumps(_verdicts))


def verdict(raised: "pytest.ExceptionInfo[BaseException] | None", phase: str, test: Path) -> str:
    """Return what a phase says of its test: an assertion counts only in the test's own file.

    An assertion elsewhere is that of a helper whose time is over, or of the program itself.
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
    if isinstance(error, BaseExceptionGroup):  # Hypothesis has found several
        return all(
            _is_assertion(one, pytest.ExceptionInfo.from_exception(one), test)
            for one in error.exceptions
        )
    if isinstance(error, pytest.fail.Exception):
        return str(error).startswith(_NOT_RAISED)
    if not isinstance(error, AssertionError):
        return False
    return Path(raised.traceback[-1].path) == test
