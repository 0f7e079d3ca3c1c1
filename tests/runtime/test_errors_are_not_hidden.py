"""What is read to explain a failure never hides it: no memory, a full disk, a huge file."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from queries.runtime.checkpoints.logs import MOST_OF_ENTRY, CheckpointReader
from queries.runtime.failures.error_capture import MESSAGE_LIMIT, from_python
from queries.runtime.liveness import ProgressTracker
from queries.runtime.run import QueryRun
from queries.runtime.scripts.program import ScriptProgram
from tests.checkpoints.forms import write_checkpoint

TROUBLES = (MemoryError("of Headgate's own"), OSError(28, "No space left"), RecursionError("deep"))


class Hostile:
    """Whatever is asked of it fails, as with everything in a process without memory."""

    def __init__(self, trouble: Exception) -> None:
        self._trouble = trouble

    def __getattr__(self, name: str) -> Any:
        raise self._trouble


class Throwable:
    """What the user's query failed by, as Java tells it."""

    def getCause(self) -> None:
        return None

    def getCondition(self) -> str:
        return ""

    def getMessage(self) -> str:
        return "the user's own trouble in jobs.py, line 7"

    def getClass(self) -> Any:
        return SimpleNamespace(getName=lambda: "java.lang.OutOfMemoryError")


def _run(trouble: Exception) -> QueryRun:
    run = object.__new__(QueryRun)
    run._guard = threading.Lock()
    run._is_fenced = True
    run._producer = Hostile(trouble)  # type: ignore[assignment]
    spark = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    run._context = SimpleNamespace(  # type: ignore[assignment]
        telemetry=Hostile(trouble),
        references=SimpleNamespace(mask=str),
        spark=SimpleNamespace(sparkContext=SimpleNamespace(_jsc=spark)),
    )
    return run


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_querys_own_failure_is_told_where_nothing_else_can_be_read(trouble: Exception) -> None:
    option = SimpleNamespace(isDefined=lambda: True, get=Throwable)
    identity = SimpleNamespace(toString=lambda: "one")
    jquery = SimpleNamespace(exception=lambda: option, runId=lambda: identity)
    found = _run(trouble)._failure_of(jquery, Hostile(trouble))  # type: ignore[arg-type]
    assert found is not None
    assert found.error.root_cause == "the user's own trouble in jobs.py, line 7"
    assert found.error.type_name == "java.lang.OutOfMemoryError"
    assert found.error.unknown_batch


def test_an_entry_as_long_as_no_entry_is_leaves_the_batch_known(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, batches=range(3), in_flight=True)
    os.truncate(tmp_path / "offsets" / "3", 4 * MOST_OF_ENTRY)
    life = ProgressTracker(Hostile(TROUBLES[0]), CheckpointReader(f"file://{tmp_path}", None), None)
    assert life.at_failure() == {"failed_batch": 3, "failed_offsets": {}}


@pytest.mark.parametrize("name", ["in_flight", "offsets"])
def test_a_look_at_the_checkpoint_that_fails_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_checkpoint(tmp_path, batches=range(3), in_flight=True)

    def fails(*_: object) -> None:
        raise TROUBLES[0]

    monkeypatch.setattr(CheckpointReader, name, fails)
    life = ProgressTracker(Hostile(TROUBLES[0]), CheckpointReader(f"file://{tmp_path}", None), None)
    found = life.at_failure()
    assert found["failed_batch"] == (None if name == "in_flight" else 3)
    assert not found.get("failed_offsets")


class Mute(Exception):
    """A user's error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_error_without_words_is_told_by_its_type() -> None:
    found = from_python(Mute(), str)
    assert found.type_name.endswith("Mute")
    assert found.root_cause.endswith("Mute")


def test_an_error_that_cannot_be_read_is_told_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> list[str]:
        raise TROUBLES[0]

    monkeypatch.setattr("traceback.format_exception", fails)
    found = from_python(KeyError("price"), str)
    assert (found.type_name, found.root_cause) == ("KeyError", "KeyError")


def test_of_a_very_long_message_only_so_much_is_masked() -> None:
    masked: list[int] = []

    def mask(text: str) -> str:
        masked.append(len(text))
        return text

    found = from_python(ValueError("x" * 50_000_000), mask)
    assert max(masked) <= 8 * MESSAGE_LIMIT
    assert len(found.message) <= MESSAGE_LIMIT


def test_a_script_whose_traceback_cannot_be_printed_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise TROUBLES[0]

    program = object.__new__(ScriptProgram)
    program._over, program.error, program._mask = threading.Event(), None, str
    monkeypatch.setattr("traceback.print_exception", fails)
    monkeypatch.setattr(program, "_execute", _raise)
    program.run()
    assert program.over
    assert program.error is not None
    assert program.error.type_name == "KeyError"


def _raise() -> None:
    raise KeyError("price")
