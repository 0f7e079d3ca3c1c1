"""Users' listeners may do anything: what they raise is counted, and answers Spark."""

import sys
from pathlib import Path

import pytest

from listeners.spark.listener import ListenerRefused, TimedListener, load

LEAVES = """
import sys

from pyspark.sql.streaming import StreamingQueryListener


class Leaves(StreamingQueryListener):
    def onQueryStarted(self, event):
        sys.exit("no more")

    def onQueryProgress(self, event): ...

    def onQueryTerminated(self, event): ...


class NeverMade(Leaves):
    def __init__(self):
        sys.exit(1)
"""


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaving_listeners.py").write_text(LEAVES)
    (tmp_path / "leaving_module.py").write_text("import sys\n\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("leaving_listeners", "leaving_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def _load(name: str) -> TimedListener:
    return load(name, slow_call_ms=1000)


def test_a_listener_that_leaves_answers_spark_with_an_error_and_is_counted(users: None) -> None:
    listener = _load("leaving_listeners:Leaves")
    with pytest.raises(RuntimeError, match="SystemExit"):
        listener.onQueryStarted(None)
    told = listener.times()
    assert (told.calls, told.errors) == (1, 1)
    assert told.last_error == "SystemExit('no more') was raised"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("leaving_module:Leaves", "cannot be imported: SystemExit"),
        ("leaving_listeners:NeverMade", "cannot be created without arguments: SystemExit"),
    ],
)
def test_a_listener_that_leaves_before_it_listens_is_refused(
    users: None, name: str, said: str
) -> None:
    with pytest.raises(ListenerRefused, match=said):
        _load(name)
