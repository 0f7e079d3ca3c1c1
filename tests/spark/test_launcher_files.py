"""What the launcher writes and keeps from others, without any driver."""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate_ground.files import is_locked, lock_holder, replace_file, take_lock
from headgate_server import places
from queries.domain.protocol import ASSIGNMENT, CURRENT, SPEC, Assignment, Current
from queries.domain.supervision.observation import Liveness
from queries.driver_folder import DriverFolder
from queries.launchers.base import LaunchRefused
from queries.launchers.process import code_copies, environment
from queries.launchers.process.launcher import LocalProcessLauncher
from tests.spark.driver_under_test import DriverUnderTest


@pytest.fixture
def launcher(tmp_path: Path) -> LocalProcessLauncher:
    return LocalProcessLauncher(tmp_path / "drivers", tmp_path / "code")


def test_code_is_copied_once_and_an_edit_changes_no_copy(
    launcher: LocalProcessLauncher, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "package/__pycache__").mkdir(parents=True)
    (root / "package/__init__.py").write_text("")
    (root / "package/query.py").write_text("ONE = 1")
    (root / "package/__pycache__/query.cpython-311.pyc").write_text("junk")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("junk")
    (first,), digest = launcher.freeze_code((str(root),))
    assert launcher.freeze_code((str(root),)) == ((first,), digest)
    files = sorted(str(path.relative_to(first)) for path in Path(first).rglob("*.*"))
    assert files == ["package/__init__.py", "package/query.py"]
    (root / "package/query.py").write_text("ONE = 2")
    (second,), other = launcher.freeze_code((str(root),))
    assert other != digest
    assert (Path(first) / "package/query.py").read_text() == "ONE = 1"
    assert (Path(second) / "package/query.py").read_text() == "ONE = 2"
    assert not list((tmp_path / "code").glob(".draft-*"))


def test_workers_that_freeze_at_once_end_with_one_copy(
    launcher: LocalProcessLauncher, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for index in range(50):
        (root / f"m{index}.py").write_text(str(index))
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(launcher.freeze_code((str(root),))[1]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    kept = [path.name for path in (tmp_path / "code").iterdir()]
    assert [name for name in kept if not name.startswith(".")] == [found[0]]  # and its lock


def test_too_much_code_and_missing_roots_are_refused_with_a_way_out(
    launcher: LocalProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "big.bin").write_bytes(b"0" * 2000)
    monkeypatch.setattr(code_copies, "LIMIT_BYTES", 1000)
    with pytest.raises(LaunchRefused, match="Move data elsewhere"):
        launcher.freeze_code((str(root),))
    with pytest.raises(LaunchRefused, match="not a folder"):
        launcher.freeze_code((str(tmp_path / "gone"),))


def test_an_assignment_never_goes_back(launcher: LocalProcessLauncher) -> None:
    control = DriverFolder.make(launcher.directory("app", 1)).control
    launcher.assign("app", Assignment(7, 1))
    launcher.assign("app", Assignment(6, 1, end=True))
    assert Assignment.loads((control / ASSIGNMENT).read_text()) == Assignment(7, 1)
    assert launcher.sight("app", 1).assignment_generation == 7
    assert launcher.sight("app", 1).liveness is Liveness.ABSENT


def test_without_java_a_launch_is_refused_and_the_intent_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    driver = DriverUnderTest(tmp_path)
    with pytest.raises(LaunchRefused, match="No Java was found"):
        driver.launch()
    assert (driver.directory / "control" / SPEC).stat().st_mode & 0o777 == 0o600
    current = Current.loads((driver.directory.parent / "control" / CURRENT).read_text())
    assert current == Current(1, str(driver.directory))
    assert driver.sight().liveness is Liveness.ABSENT


def test_a_java_that_the_application_s_spark_does_not_support_refuses_a_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho '    java.specification.version = 21' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    driver = DriverUnderTest(tmp_path)
    driver.spec = replace(driver.spec, spark=str(tmp_path / "3.5"))
    with pytest.raises(
        LaunchRefused, match=r"Spark 3\.5 runs on Java 17, but drivers on this host use Java 21"
    ):
        driver.launch()
    assert driver.sight().liveness is Liveness.ABSENT


def test_a_folder_that_cannot_be_written_refuses_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "drivers").write_text("a file where a folder should be")
    with pytest.raises(LaunchRefused, match="cannot be used"):
        DriverUnderTest(tmp_path).launch()


def test_pruning_keeps_the_newest_and_whatever_lives(launcher: LocalProcessLauncher) -> None:
    for epoch in range(1, 6):
        DriverFolder.make(launcher.directory("app", epoch))
    living = take_lock(launcher.directory("app", 1) / "own/driver.lock")
    assert living is not None
    launcher.prune("app", keep=2)
    kept = sorted(path.name for path in launcher.directory("app", 0).parent.iterdir())
    assert kept == ["1", "4", "5"]
    os.close(living)


def test_names_that_are_no_folders_of_their_own_are_refused(
    launcher: LocalProcessLauncher,
) -> None:
    for name in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="application"):
            launcher.directory(name, 1)


def test_a_drivers_environment_holds_nothing_of_the_control_plane(tmp_path: Path) -> None:
    environ = {
        "PATH": "/bin",
        "SECRET_KEY": "x",
        "DATABASE_URL": "x",
        "REDIS_URL": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "LD_PRELOAD": "x",
        "SPARK_REMOTE": "sc://x",
        "SPARK_LOCAL_DIRS": "/x",
        "SPARK_HOME": "/spark",
        "API_TOKEN": "t",
    }
    passed = environment.for_driver(
        environ,
        allowlist=("API_TOKEN", "SECRET_KEY", "DATABASE_URL"),
        code_roots=("/code/a", "/code/b"),
        tmp=tmp_path,
    )
    assert {name for name in environ if name in passed} == {"PATH", "SPARK_HOME", "API_TOKEN"}
    # Ours first: a user's module can never stand in for one of ours.
    assert passed["PYTHONPATH"] == f"{places.ROOT}:/code/a:/code/b"


def test_another_spark_precedes_ours_and_is_the_home_of_spark(tmp_path: Path) -> None:
    passed = environment.for_driver(
        {"SPARK_HOME": "/spark"}, allowlist=(), code_roots=(), tmp=tmp_path, spark="/sparks/4.2"
    )
    assert passed["PYTHONPATH"] == f"/sparks/4.2:{places.ROOT}"
    assert passed["SPARK_HOME"] == "/sparks/4.2/pyspark"


@pytest.mark.parametrize("master", ["local[2]", "yarn", "spark://h:7077"])
def test_only_drivers_on_kubernetes_get_its_account(tmp_path: Path, master: str) -> None:
    environ = {"HEADGATE_KUBECONFIG": "/account/kubeconfig", "KUBECONFIG": "/root/.kube/config"}
    about: dict[str, Any] = {"allowlist": (), "code_roots": (), "tmp": tmp_path}
    assert "KUBECONFIG" not in environment.for_driver(environ, master=master, **about)
    passed = environment.for_driver(environ, master="k8s://https://10.0.0.1:6443", **about)
    assert passed["KUBECONFIG"] == "/account/kubeconfig"


@pytest.fixture
def lock_path(tmp_path: Path) -> Path:
    return tmp_path / "x.lock"


def test_a_look_at_a_lock_takes_nothing(lock_path: Path) -> None:
    assert not is_locked(lock_path)
    held = take_lock(lock_path)
    assert held is not None
    assert is_locked(lock_path)
    assert take_lock(lock_path) is None
    assert is_locked(lock_path)  # neither the look nor the refusal has dropped it
    os.close(held)
    assert not is_locked(lock_path)
    assert lock_holder(lock_path) is None


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    replace_file(path, "one")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "\ud800")
    assert path.read_text() == "one"
    assert [found.name for found in tmp_path.iterdir()] == ["spec.json"]


def test_the_spec_travels_as_it_is(tmp_path: Path) -> None:
    spec = replace(DriverUnderTest(tmp_path).spec, listeners=("a:B",), env={"T": "env:T"})
    assert type(spec).loads(spec.dumps()) == spec
