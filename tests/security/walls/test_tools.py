"""Our programs that read an author's text: no network and none of the worker's files in reach."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate_ground.tool_process import ToolFailed
from queries.domain.definitions.sql_verdict import SqlQuestion, View
from queries.domain.hosts import choose
from queries.domain.sparks import OURS
from queries.launchers.base import LaunchRefused
from queries.launchers.process.isolation import apply, self_test
from queries.services.checkpoints.storage_jvms import open_checkpoints
from queries.services.definitions.sql_check import start_parser
from queries.spark_parser.parser import NoParser
from queries.spark_parser.process import ParserProcess

SECRET = "a-value-of-the-control-plane"
#: What somebody tries who has found a flaw in Spark's parser.
ATTACK = """
import json, os, signal, socket, sys
port, abstract, home, worker = sys.argv[1:]
def connects(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(10)
        one.connect(address)
def writes(path):
    with open(path, "a") as file:
        file.write("x")
attacks = {
    "connects to the host": lambda: connects(socket.AF_INET, ("127.0.0.1", int(port))),
    "connects to an abstract socket": lambda: connects(socket.AF_UNIX, "\\0" + abstract),
    "sees the host's networks": lambda: [n for _, n in socket.if_nameindex() if n != "lo"][0],
    "reads the database": lambda: open(f"{home}/headgate.sqlite3").read(),
    "reads a secret": lambda: open(f"{home}/secrets/theirs").read(),
    "reads another application": lambda: os.listdir(f"{home}/drivers/other"),
    "writes to its scratch folder": lambda: writes("/tmp/mine"),
    "writes a program": lambda: writes(f"{home}/current"),
    "reads accounts": lambda: open("/etc/passwd").read(),
    "reads the worker's environment": lambda: open(f"/proc/{worker}/environ").read(),
    "signals the worker": lambda: os.kill(int(worker), 0),
    "has the worker's variables": lambda: os.environ["SECRET_KEY"],
}
found = {}
for name, attack in attacks.items():
    try:
        attack()
        found[name] = "done"
    except (OSError, LookupError) as error:
        found[name] = type(error).__name__
print(json.dumps(found))
"""
#: What the mode without walls allows too, and what is no attack.
_ALWAYS_STOPPED = {"has the worker's variables"}
_ALLOWED = {"writes to its scratch folder"}


@pytest.fixture
def home(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path / "home"
    for name in ("headgate.sqlite3", "secrets/theirs", "drivers/other/file", "current"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    settings.HEADGATE_HOME, settings.DRIVERS_DIR = home, home / "drivers"
    settings.SECRETS_DIR = home / "secrets"
    monkeypatch.setenv("SECRET_KEY", SECRET)
    self_test._isolation.cache_clear()
    yield home
    self_test._isolation.cache_clear()


def _attacked(home: Path) -> dict[str, str]:
    """Return what came of each attack by a program that is started as the parser is."""
    name = f"headgate-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abstract,
    ):
        abstract.bind(f"\0{name}")
        abstract.listen()
        port = server.getsockname()[1]
        argv = [sys.executable, "-P", "-c", ATTACK, str(port), name, str(home), str(os.getpid())]
        process = apply.start(argv, hidden=[home])
        said, errors = process.communicate(timeout=120)
    assert said, errors
    found: dict[str, str] = json.loads(said)
    return found


@pytest.mark.guarantee("G-PARSE-1")
@pytest.mark.walls
def test_within_walls_no_attack_succeeds(home: Path, settings: Any) -> None:
    settings.ISOLATION = "bubblewrap"
    found = _attacked(home)
    worker = os.getpid()
    if worker < 100:  # a process of its own may have that number
        found.pop("signals the worker")
        found.pop("reads the worker's environment")
    assert {name for name, how in found.items() if how == "done"} == _ALLOWED


def test_each_attack_succeeds_where_an_admin_has_chosen_no_walls(home: Path, settings: Any) -> None:
    settings.ISOLATION = "neither"
    found = _attacked(home)
    stopped = {name for name, how in found.items() if how != "done"}
    assert stopped - {"sees the host's networks"} == _ALWAYS_STOPPED
    Path("/tmp/mine").unlink()


@pytest.mark.guarantee("G-PARSE-2")
def test_where_walls_are_required_and_missing_nothing_is_started(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(apply, "isolation", lambda: choose("bubblewrap", "it is not installed."))
    monkeypatch.setattr(apply, "_open", lambda *given: started.append(given))
    with pytest.raises(LaunchRefused, match="it is not installed"):
        apply.start([sys.executable, "-c", ""])
    with pytest.raises(NoParser, match="it is not installed"):
        start_parser(OURS)
    with pytest.raises(ToolFailed, match="it is not installed"):
        open_checkpoints()
    assert not started


@pytest.mark.walls
@pytest.mark.spark
def test_sparks_parser_judges_within_walls_without_a_network(home: Path, settings: Any) -> None:
    settings.ISOLATION = "bubblewrap"
    view = View("codes", "code BIGINT, label STRING", streaming=False)
    with start_parser(OURS) as parser:
        assert parser.judge(SqlQuestion("SELECT label FROM codes", (view,))).state is not None
        assert not parser.judge(SqlQuestion("SELECT lable FROM codes", (view,))).ok
        below = psutil.Process(parser.process.pid).children(recursive=True)
        [java] = [one for one in below if one.name() == "java"]
        for kind in ("net", "mnt", "pid", "user"):
            there, here = (os.readlink(f"/proc/{pid}/ns/{kind}") for pid in (java.pid, "self"))
            assert there != here, kind
        assert SECRET not in str(java.environ())
        held = [path for path in _open_files(java.pid) if str(home) in path]
        assert held == []
        sockets = [one for one in _open_files(java.pid) if one.startswith("socket:")]
        ours = {one for one in _open_files(os.getpid()) if one.startswith("socket:")}
        assert not ours.intersection(sockets)
    assert not psutil.pid_exists(java.pid)


def _open_files(pid: int) -> list[str]:
    folder, found = Path(f"/proc/{pid}/fd"), []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed in the meantime
            found.append(os.readlink(folder / name))
    return found


@pytest.mark.guarantee("G-PARSE-4")
@pytest.mark.walls
@pytest.mark.spark
def test_no_class_that_a_text_names_is_loaded(home: Path, settings: Any) -> None:
    """A schema of `from_json` may name a user-defined type, which Spark would instantiate."""
    settings.ISOLATION = "bubblewrap"
    named = {"class": "org.apache.spark.ml.linalg.VectorUDT", "pyClass": None, "sqlType": "string"}
    field = {"name": "v", "type": {"type": "udt", **named}, "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    view = View("codes", "code STRING", streaming=False)
    with start_parser(OURS) as parser:
        for text, is_judged in ((schema, False), ("label STRING", True)):
            found = parser.judge(
                SqlQuestion(f"SELECT from_json(code, '{text}') FROM codes", (view,))
            )
            assert found.ok
            assert (found.state is not None) is is_judged


HOSTILE = {
    "has ended": "import sys; sys.exit('boom')",
    "that is not JSON": "print('x', flush=True); input()",
    "not an answer": "print('[1]', flush=True); input()",
    "no verdict": "print('{}', flush=True); input(); print('{\"verdict\": {}}', flush=True)",
    "more than": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "did not answer": "import time; time.sleep(600)",
    "boom": 'print(\'{"failed": "boom"}\', flush=True); input()',
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_process_that_has_been_taken_over_stops_no_worker(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "did not answer":
        monkeypatch.setattr("queries.spark_parser.process.STARTS_WITHIN_S", 1)
        monkeypatch.setattr("headgate_ground.tool_process.LEAVES_WITHIN_S", 1)
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", HOSTILE[why]]
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)
    with ParserProcess(process) as parser, pytest.raises(NoParser, match=why):
        parser.judge(SqlQuestion("SELECT 1"))
    assert process.returncode is not None
