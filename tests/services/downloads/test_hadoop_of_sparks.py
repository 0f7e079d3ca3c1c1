"""Spark 3.5 and 4.0 are installed with a Hadoop that can fence checkpoints on S3."""

from pathlib import Path
from typing import Any

import pytest

from headgate_server import downloads
from headgate_server.downloads import SPARK_JARS, SUMS, DownloadFailed, Downloads

OLD, NEW, OTHER = "hadoop-client-api-3.4.1.jar", "hadoop-client-api-3.4.2.jar", "py4j-0.10.jar"


class Installer:
    """Downloads of a host, with programs that stand for pip and Maven."""

    def __init__(self, folder: Path) -> None:
        self.mavens_text = "new"
        self.sparks = folder / "sparks"
        recipes = folder / "recipes"
        hadoop = recipes / "sparks" / "hadoop"
        hadoop.mkdir(parents=True)
        for version in ("4.0", "4.1"):
            (recipes / "sparks" / f"{version}.txt").write_text(f"pyspark=={version}.0\n")
        (hadoop / "pom.xml").touch()
        (hadoop / NEW).write_text("new")
        downloads.write_sums(hadoop)
        (hadoop / NEW).unlink()
        self.lines: list[str] = []
        self._downloads = Downloads(
            recipes, folder / "connectors", self.sparks, self.lines.append, self._follow
        )

    def _follow(self, command: list[str], *_: Any, **__: Any) -> tuple[int, list[str]]:
        if command[0].endswith("mvn"):
            [target] = [one.partition("=")[2] for one in command if "outputDirectory" in one]
            (Path(target) / NEW).write_text(self.mavens_text)
        else:
            jars = Path(command[command.index("--target") + 1]) / SPARK_JARS
            jars.mkdir(parents=True)
            for name in (OLD, OTHER):
                (jars / name).write_text("Spark's")
        return 0, []

    def install(self, version: str) -> list[str]:
        """Install a version; return the names of its jars."""
        self._downloads.spark(version)
        return sorted(path.name for path in (self.sparks / version / SPARK_JARS).glob("*.jar"))


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.touch()
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent))
    return Installer(tmp_path)


def test_the_hadoop_of_an_old_spark_is_replaced_and_that_of_a_newer_one_is_kept(
    installer: Installer,
) -> None:
    assert installer.install("4.0") == [NEW, OTHER]
    assert installer.install("4.1") == [OLD, OTHER]
    assert downloads.differing(installer.sparks / "4.0" / SPARK_JARS) == []
    installer.lines.clear()
    installer.install("4.0")
    assert installer.lines == [], "nothing is downloaded twice"


def test_a_folder_of_an_older_release_gets_the_new_hadoop(installer: Installer) -> None:
    installer.install("4.0")
    folder = installer.sparks / "4.0"
    jars = folder / SPARK_JARS
    (jars / NEW).rename(jars / OLD)
    downloads.write_sums(jars)
    (folder / ".pom.sha256").write_text("the digest of the list of packages alone\n")
    assert installer.install("4.0") == [NEW, OTHER]


def test_a_jar_that_is_not_the_pinned_one_is_not_installed(installer: Installer) -> None:
    installer.mavens_text = "something else"
    with pytest.raises(DownloadFailed) as failed:
        installer.install("4.0")
    assert f"File {NEW} differs from what was downloaded." in failed.value.problem
    assert "~/.m2/settings.xml" in failed.value.way_out
    assert not (installer.sparks / "4.0" / SUMS).exists()
    assert not (installer.sparks / "4.0").exists()
