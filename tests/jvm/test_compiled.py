"""Our Java classes are compiled on the host, once for each version of their sources."""

import os
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate_ground.files import lock_of, take_lock
from queries.domain.sparks import SPARKS, Spark, command
from queries.jvm import compiled
from queries.jvm.compiled import NotCompiled, our_jar
from tests import pieces

pytestmark = pytest.mark.spark

LIMIT_S = 60


def test_the_jar_is_compiled_once_and_holds_every_class(tmp_path: Path) -> None:
    jar = our_jar(tmp_path)
    made = jar.stat()
    assert "headgate/CheckpointFiles.class" in zipfile.ZipFile(jar).namelist()
    assert made.st_mode & 0o444 == 0o444
    assert our_jar(tmp_path) == jar
    assert jar.stat().st_mtime_ns == made.st_mtime_ns
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".{jar.name}.lock", jar.name]


@pytest.mark.parametrize("spark", SPARKS)
def test_each_spark_has_a_jar_of_its_own_compiled_with_its_own_jars(
    tmp_path: Path, spark: Spark
) -> None:
    jars = pieces.jars_of_sparks().get(spark)
    if jars is None:
        pytest.skip(f"Spark {spark} is missing; get it with `{command(spark)}`")
    jar = our_jar(tmp_path, jars=jars)
    names = zipfile.ZipFile(jar).namelist()
    assert "headgate/Fence.class" in names
    assert "headgate/StorageServer.class" in names
    assert ("headgate/UiFilter.class" in names) == (spark == "3.5")
    others = [folder for other, folder in pieces.jars_of_sparks().items() if other != spark]
    assert all(compiled.existing(tmp_path, other) is None for other in others)
    assert all(compiled.missing(tmp_path, other) == compiled.COMPILING for other in others)


def test_a_folder_without_spark_has_no_classes_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled, match="contains no Spark"):
        our_jar(tmp_path / "classes", jars=tmp_path)


def test_of_several_that_miss_the_jar_one_compiles_it_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, going_on = threading.Event(), threading.Event()
    compiled_by: list[int] = []

    def compiles(sources: list[Path], target: Path, java_home: str, jars: Path) -> None:
        compiled_by.append(threading.get_ident())
        begun.set()
        assert going_on.wait(LIMIT_S)
        (target / "Fence.class").write_bytes(b"class")

    monkeypatch.setattr(compiled, "_compile", compiles)
    with ThreadPoolExecutor(4) as pool:
        jars = [pool.submit(our_jar, tmp_path) for _ in range(4)]
        assert begun.wait(LIMIT_S)
        going_on.set()
        assert len({jar.result(LIMIT_S) for jar in jars}) == 1
    assert len(compiled_by) == 1


def test_who_waits_for_another_process_does_so_with_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "WAIT_LIMIT_S", 0)
    held = take_lock(lock_of(tmp_path / compiled.jar_name()))
    assert held is not None
    with pytest.raises(NotCompiled, match="Another process has been compiling"):
        our_jar(tmp_path)
    os.close(held)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".building-{compiled.jar_name().removesuffix('.jar')}-gone"
    other = tmp_path / ".building-another-version"
    left.mkdir()
    other.mkdir()
    our_jar(tmp_path)
    assert not left.exists()
    assert other.exists(), "another process may be compiling for another Spark"


def test_a_failure_is_reported_again_before_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fails(sources: list[Path], target: Path, java_home: str, jars: Path) -> None:
        tried.append(java_home)
        raise NotCompiled("There is no compiler.")

    monkeypatch.setattr(compiled, "_compile", fails)
    assert compiled.missing(tmp_path) == compiled.COMPILING
    for _ in range(2):
        with pytest.raises(NotCompiled, match="no compiler"):
            our_jar(tmp_path)
        compiled.begin(tmp_path)
        compiled.wait(LIMIT_S)
    assert (len(tried), compiled.missing(tmp_path)) == (1, "There is no compiler")
    monkeypatch.setattr(compiled, "RETRY_S", 0)
    compiled.begin(tmp_path)
    compiled.wait(LIMIT_S)
    assert len(tried) == 2


def test_whatever_goes_wrong_in_its_thread_is_known_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(sources: list[Path], target: Path, java_home: str, jars: Path) -> None:
        raise ValueError("nobody has thought of this")

    monkeypatch.setattr(compiled, "_compile", fails)
    compiled.begin(tmp_path)
    compiled.wait(LIMIT_S)
    assert compiled.compile_failed(tmp_path)
    assert compiled.missing(tmp_path) == "An error in Headgate: ValueError"


def test_a_worker_that_ends_does_not_wait_for_the_compiler_and_takes_it_along(
    tmp_path: Path,
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    # As Java does with py4j's server, it ends with its input.
    java.write_text(f"#!/bin/sh\necho > {tmp_path}/begun\ncat\necho > {tmp_path}/ended\n")
    java.chmod(0o755)
    worker = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from queries.jvm import compiled\n"
        "home = Path(sys.argv[1])\n"
        "compiled.begin(home / 'jars')\n"
        "while not (home / 'begun').exists():\n"
        "    time.sleep(0.05)\n"
    )
    command = [sys.executable, "-c", worker, str(tmp_path)]
    subprocess.run(
        command, env={**os.environ, "JAVA_HOME": str(tmp_path)}, check=True, timeout=LIMIT_S
    )
    ends = time.monotonic() + LIMIT_S
    while not (tmp_path / "ended").exists():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_a_jar_next_to_the_sources_is_used_and_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = compiled.jar_name()
    monkeypatch.setattr(compiled, "SOURCES", tmp_path)
    (tmp_path / name).touch()
    assert our_jar(tmp_path / "unused") == tmp_path / name
    assert not (tmp_path / "unused").exists()


def test_it_is_compiled_for_a_wheel_or_an_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiled.main([str(tmp_path)]) == 0
    assert Path(capsys.readouterr().out.strip()).parent == tmp_path
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert compiled.main([str(tmp_path / "another")]) == 1
    assert "Java cannot be started" in capsys.readouterr().err


def test_a_java_that_does_not_answer_is_not_waited_for_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec sleep 1000\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "COMPILE_LIMIT_S", 1)
    with pytest.raises(NotCompiled, match="Java does not start within 1 s, or fails"):
        our_jar(tmp_path / "jars")


def test_without_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotCompiled, match="no Java in JAVA_HOME or PATH"):
        our_jar(tmp_path / "jars")
