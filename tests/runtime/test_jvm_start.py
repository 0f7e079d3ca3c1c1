"""A driver's JVM starts as PySpark starts it: same command, same environment, earlier."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, java_gateway
from pyspark.find_spark_home import _find_spark_home

from queries.domain.protocol import DriverSpec
from queries.runtime.jvms import driver
from queries.runtime.jvms.driver import CLASS_ARCHIVE, Jvm
from queries.runtime.process import Steps


class Started(Exception):
    """A process would be started now."""


class Starts:
    """Records what would be started."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.interrupts: list[Any] = []

    def __call__(self, command: list[str], **more: Any) -> Any:
        before = signal.getsignal(signal.SIGINT)
        if "preexec_fn" in more:
            more["preexec_fn"]()
        self.interrupts.append(signal.getsignal(signal.SIGINT))
        signal.signal(signal.SIGINT, before)
        assert more["stdin"] == subprocess.PIPE
        self.commands.append(command)
        self.environments.append(dict(more["env"]))
        raise Started


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Starts()
    monkeypatch.setattr(java_gateway, "Popen", found)
    monkeypatch.setattr(subprocess, "Popen", found)
    before, environ = signal.getsignal(signal.SIGINT), dict(os.environ)
    yield found
    signal.signal(signal.SIGINT, before)
    os.environ.clear()
    os.environ.update(environ)


def _spec(**changes: Any) -> DriverSpec:
    form: dict[str, Any] = {
        **{"driver": 1, "epoch": 1, "application": "a", "installation": "", "host": "here"},
        **{"master": "local[2]", "memory": "1g", "conf": {}, "env": {}, "code_roots": ()},
        **{"code_sha256": "", "scheduler_mode": "FAIR", "listeners": (), "redis_url": ""},
        **{"stream": "", **changes},
    }
    return DriverSpec(**form)


def _begun(spec: DriverSpec, own: Path) -> None:
    with pytest.raises(Started):
        Jvm(spec, own, lock=0).begin()


@pytest.mark.parametrize("arguments", ["", "--verbose pyspark-shell"])
def test_the_command_and_the_environment_are_those_of_pyspark(
    starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    if arguments:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    spec = _spec(jars=("/jars/a.jar", "/jars/b.jar"), env={"PLANET": "earth"})
    _begun(spec, tmp_path)
    conf = SparkConf(loadDefaults=False)
    told = starts.commands[0]
    for place, word in enumerate(told):
        if word == "--conf":
            conf.set(*told[place + 1].split("=", 1))
    with pytest.raises(Started):
        java_gateway.launch_gateway(conf)
    programs = [os.path.normpath(command.pop(0)) for command in starts.commands]
    assert programs[0] == programs[1]
    assert sorted(starts.commands[0]) == sorted(starts.commands[1])
    ours, theirs = ({**one, "_PYSPARK_DRIVER_CONN_INFO_PATH": ""} for one in starts.environments)
    assert ours == {**theirs, "SPARK_HOME": _find_spark_home()}
    assert ours["PLANET"] == "earth"
    assert starts.interrupts == [signal.SIG_IGN, signal.SIG_IGN]


def test_an_archive_is_mapped_quietly_and_no_child_learns_of_it(
    starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CLASS_ARCHIVE, "/home/classes/a b.jsa")
    _begun(_spec(), tmp_path)
    [options] = [one for one in starts.commands[0] if "extraJavaOptions" in one]
    assert (
        '"-XX:SharedArchiveFile=/home/classes/a b.jsa" -Xshare:auto -XX:+VerifySharedSpaces'
        in options
    )
    assert CLASS_ARCHIVE not in starts.environments[0]
    assert CLASS_ARCHIVE not in os.environ


def test_without_an_archive_nothing_is_said_of_one(starts: Starts, tmp_path: Path) -> None:
    _begun(_spec(), tmp_path)
    assert "Shared" not in " ".join(starts.commands[0])


def test_a_jvm_that_ends_at_once_is_an_error_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(driver, "_command", lambda *_: ["/bin/false"])
    monkeypatch.setattr(driver, "_equip", lambda *_: None)
    jvm = Jvm(_spec(), tmp_path, lock=0)
    with pytest.raises(Exception, match="JAVA_GATEWAY_EXITED"):
        jvm.gateway()
    assert jvm.process is not None
    assert jvm.process.stdin is not None
    jvm.process.stdin.close()
    assert list(tmp_path.iterdir()) == []


def test_the_steps_of_a_start_begin_with_the_process() -> None:
    steps = Steps("interpreter")
    steps.done("imports")
    names = [part.rpartition(" ")[0] for part in str(steps).split(", ")]
    assert names == ["interpreter", "imports"]
    assert float(str(steps).split(", ")[0].split()[1]) > 0
