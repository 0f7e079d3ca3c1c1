"""Our Java classes are compiled on the host, once for each version of their sources."""

import zipfile
from pathlib import Path

import pytest

from queries.jvm import compiled
from queries.jvm.compiled import NotCompiled, our_jar

pytestmark = pytest.mark.spark


def test_the_jar_is_compiled_once_and_holds_every_class(tmp_path: Path) -> None:
    jar = our_jar(tmp_path)
    made = jar.stat()
    assert "headgate/CheckpointFiles.class" in zipfile.ZipFile(jar).namelist()
    assert made.st_mode & 0o444 == 0o444
    assert our_jar(tmp_path) == jar
    assert jar.stat().st_mtime_ns == made.st_mtime_ns
    assert [path.name for path in tmp_path.iterdir()] == [jar.name]


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
