"""Download connectors with Maven and Spark versions with pip.

`bootstrap/fetch.py` uses this module at a terminal. It needs only the standard library. Each folder
is replaced as a whole and contains the digest of its pom or its list of packages. If the digest and
the jars are unchanged, nothing is downloaded and no network is needed. A folder of jars also
contains their checksums.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

#: File in a folder of jars with their checksums, in the format of `sha256sum`.
SUMS = "SHA256SUMS"
#: Folder of the jars in the folder of a version of Spark.
SPARK_JARS = "pyspark/jars"
#: Spark version -> the newest Python that it runs on, if newer ones exist (PyPI's classifiers).
NEWEST_PYTHON: Mapping[str, tuple[int, int]] = MappingProxyType({"3.5": (3, 11)})
#: A jar's file name, and the artifact and version in it.
JAR = re.compile(r"(?P<artifact>.+?)-(?P<version>\d[\w.]*(?:-\w+)*)\.jar")
#: Versions whose Hadoop cannot fence a checkpoint on S3, and is replaced (decision 0048).
_OLD_HADOOP = frozenset({"3.5", "4.0"})
#: File with the digest of what a folder was made of: a pom, a list of packages.
STAMP = ".pom.sha256"
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_SCALA = re.compile(r"_(2\.1\d):")  # at the end of an artifact's name
_NAME = re.compile(r"[a-z][a-z0-9._-]{0,63}")
#: First line of a connector.toml that `connector add` wrote. A file without this line is kept.
_WRITTEN = "# Written by `connector add`, which replaces this file unless you delete this line.\n"
#: Groups whose artifacts Spark contains in jars of other names, or that compete with its logging.
_INSIDE_SPARK = (
    *("org.apache.hadoop", "org.slf4j", "commons-logging"),
    *("log4j", "ch.qos.logback", "ch.qos.reload4j"),
)
#: The reason in Maven's output, without the part that all its errors have.
_REASON = re.compile(
    r"(?:Could not (?:find|transfer) artifact|The following artifacts could not be resolved:)"
    r" .{1,300}?(?= ->|$)"
)
_PLUGIN = """  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.8.1</version>
      </plugin>
    </plugins>
  </build>
"""

#: Runs a command and shows its progress: `bootstrap.run.follow`. Returns its exit code and the last
#: lines of its output.
Follow = Callable[..., tuple[int, list[str]]]


class DownloadFailed(Exception):
    """A download failed, or was not possible; has the problem and a way out."""

    def __init__(self, problem: str, way_out: str) -> None:
        super().__init__(f"{problem} {way_out}")
        self.problem, self.way_out = problem, way_out


@dataclass(frozen=True, slots=True)
class Downloads:
    """Where recipes are read from, where downloads are put, and where progress is shown."""

    recipes: Path  # the folder `connectors` of the code
    connectors: Path  # HEADGATE_CONNECTORS
    sparks: Path
    report: Callable[[str], None]  # one line
    follow: Follow

    def versions(self) -> list[str]:
        """Return the Spark versions, other than Headgate's own, that can be installed."""
        return sorted(path.stem for path in self.recipes.glob("sparks/*.txt"))

    def recipe_names(self) -> list[str]:
        """Return the names of the connectors that have a recipe."""
        return sorted(path.parent.name for path in self.recipes.glob("*/connector.toml"))

    def check_version(self, version: str) -> None:
        """Raise `DownloadFailed` if a Spark version cannot be installed."""
        if version not in self.versions():
            raise DownloadFailed(
                f"Spark {version!r} cannot be installed.",
                f"Choose {', '.join(self.versions())}, or omit the version for Headgate's own.",
            )

    def spark(self, version: str) -> None:
        """Download PySpark of a version, and build its package.

        The folder of an old version also contains NumPy, pandas and PyArrow, which come before ours
        on a driver's import path: it does not run with those of `requirements.txt`.
        """
        self.check_version(version)
        newest = NEWEST_PYTHON.get(version, sys.version_info[:2])
        if sys.version_info[:2] > newest:
            wanted = ".".join(map(str, newest))
            raise DownloadFailed(
                f"Spark {version} runs on Python {wanted} or older, and Headgate runs here on "
                f"{sys.version.split()[0]}.",
                f"Install Headgate with Python {wanted}, or choose a newer Spark.",
            )
        pins = self.recipes / "sparks" / f"{version}.txt"
        hadoop = self.recipes / "sparks" / "hadoop" if version in _OLD_HADOOP else None
        made_of = pins.read_bytes() + (b"" if hadoop is None else (hadoop / SUMS).read_bytes())
        with replaced(self.sparks / version, made_of, jars=SPARK_JARS) as folder:
            if folder is None:
                jars = self.sparks / version / SPARK_JARS
                if not (jars / SUMS).exists():  # installed by an older release
                    write_sums(jars)
                return
            self.report(f"Installing Spark {version}: a download of 450 MB, then a minute of work…")
            code, output = self.follow(
                pip_install(pins, folder),
                r"^\s*(?:Collecting|Building wheel for) ([\w.-]+)",
                lambda _, found: found[1],
                steps={"Installing collected": "unpacking…"},
            )
            jars = folder / SPARK_JARS
            if code or not jars.is_dir():
                raise DownloadFailed(
                    f"pip could not install Spark {version} (code {code}): {_end_of(output)}",
                    "Check the network and the free disk space (1 GB is needed). Then try again.",
                )
            if hadoop is not None:
                self.replace_hadoop(hadoop, jars)
            write_sums(jars)
        self.report(f"  Spark {version}, in {self.sparks / version}")

    def replace_hadoop(self, recipe: Path, jars: Path) -> None:
        """Replace jars of a Spark by those of a recipe, which pins them; raise `DownloadFailed`."""
        self.report("Resolving Hadoop with Maven…")
        with tempfile.TemporaryDirectory(dir=jars.parent) as folder:
            fetched = Path(folder)
            self._copy_dependencies(recipe / "pom.xml", fetched, [], "Hadoop")
            shutil.copy(recipe / SUMS, fetched)
            if problems := differing(fetched):
                raise DownloadFailed(
                    f"Maven's jars of Hadoop are not the expected ones. {problems[0]}",
                    "Check which repository Maven uses (~/.m2/settings.xml). Then try again.",
                )
            new = {artifact(jar): jar for jar in fetched.glob("*.jar")}
            for jar in jars.glob("*.jar"):
                if artifact(jar) in new:
                    jar.unlink()
            for jar in new.values():
                jar.rename(jars / jar.name)

    def connector(self, name: str, version: str = "", coordinates: Sequence[str] = ()) -> None:
        """Download a connector for a Spark version; "" is Headgate's own.

        Without coordinates, the connector's recipe names them. Raises `DownloadFailed`.
        """
        if version:
            self.check_version(version)
        if version and not (self.sparks / version / SPARK_JARS).is_dir():
            from headgate_server import places  # not in the image's build, which never gets here

            raise DownloadFailed(
                f"Spark {version} is not installed: its jars decide which jars a connector needs.",
                places.with_local_commands(f"Install it first: `make spark ARGS={version}`."),
            )
        target = self.folder_of(name, version)
        what = f"the connector {name}" + (f" for Spark {version}" if version else "")
        if coordinates:
            self._of_coordinates(name, target, coordinates, what, version)
            return
        if name not in self.recipe_names():
            raise DownloadFailed(
                f"There is no recipe for {name}.",
                f"Choose {', '.join(self.recipe_names())}, or add Maven coordinates: "
                f"`{name} GROUP:ARTIFACT:VERSION`.",
            )
        recipe = tomllib.loads((self.recipes / name / "connector.toml").read_text())
        versions = recipe.get("versions", {})
        if version not in versions and (version or "packages" not in recipe):
            wanted = f"Spark {version}" if version else "Headgate's own Spark version"
            choices = ", ".join(sorted(versions))
            raise DownloadFailed(
                f"The connector {name} has no recipe for {wanted}.",
                f"Choose {choices} with --spark." if choices else "Leave --spark out.",
            )
        self.resolve(
            self.recipes / name / "pom.xml",
            target,
            what=what,
            properties=versions.get(version, {}),
            without=self.jars_of_spark(version),
        )

    def folder_of(self, name: str, version: str) -> Path:
        """Return the folder of a connector for a Spark version; "" is Headgate's own."""
        return self.connectors / version / name

    def jars_of_spark(self, version: str) -> frozenset[str]:
        """Return the artifacts among Spark's own jars; none if Spark is not installed here."""
        return frozenset(artifact(path) for path in self._spark_jars(version))

    def scala_of(self, version: str) -> str:
        """Return a Spark version's Scala, such as "2.13"; "" if Spark is not installed here."""
        jars = [JAR.fullmatch(path.name) for path in self._spark_jars(version)]
        found = [jar["version"] for jar in jars if jar and jar["artifact"] == "scala-library"]
        return found[0].rpartition(".")[0] if found else ""

    def _spark_jars(self, version: str) -> list[Path]:
        if version:
            folder = self.sparks / version / "pyspark"
        else:
            package = find_spec("pyspark")
            if package is None or package.origin is None:
                return []
            folder = Path(package.origin).parent
        return list(folder.glob("jars/*.jar"))

    def resolve(
        self,
        pom: Path,
        target: Path,
        *,
        what: str,
        properties: Mapping[str, str] = MappingProxyType({}),
        without: frozenset[str] = frozenset(),
        declared: str = "",
    ) -> None:
        """Make Maven copy a pom's jars to a folder, unless they exist; raise `DownloadFailed`.

        Jars whose artifacts are in `without` are left out. `declared` is the folder's
        connector.toml; "" for none.
        """
        definitions = [f"-D{key}={value}" for key, value in sorted(properties.items())]
        with replaced(target, pom.read_bytes() + "".join(definitions).encode()) as folder:
            if folder is None:
                if not (target / SUMS).exists():  # installed by an older release
                    write_sums(target)
                return
            self.report(f"Resolving {what} with Maven…")
            self._copy_dependencies(pom, folder, definitions, what)
            for jar in folder.glob("*.jar"):
                if artifact(jar) in without:
                    jar.unlink()
            if not any(folder.glob("*.jar")):
                raise DownloadFailed(
                    f"Maven found no jars for {what} except those that Spark contains.",
                    "Check its coordinates.",
                )
            write_sums(folder)
            if declared:
                (folder / "connector.toml").write_text(declared)
        jars = sorted(target.glob("*.jar"))
        size = sum(jar.stat().st_size for jar in jars) / 1e6
        self.report(f"  {len(jars)} jars, {size:.0f} MB, in {target}")

    def _of_coordinates(
        self, name: str, target: Path, coordinates: Sequence[str], what: str, version: str
    ) -> None:
        """Download a connector without a recipe."""
        check_coordinates(name, coordinates, self.recipe_names())
        without = self.jars_of_spark(version)
        if not without:
            raise DownloadFailed(
                "This Python has no PySpark, so the jars that Spark contains are unknown.",
                "Run the command in Headgate's own Python environment.",
            )
        scala = self.scala_of(version)
        for coordinate in coordinates:
            if scala and (match := _SCALA.search(coordinate)) and match[1] != scala:
                raise DownloadFailed(
                    f"{coordinate} is for Scala {match[1]}, but this Spark has Scala {scala}.",
                    f"Use the artifact that ends in _{scala}.",
                )
        declaration = target / "connector.toml"
        declared = declaration.read_text() if declaration.exists() else _WRITTEN
        if declared.startswith(_WRITTEN):
            listed = ", ".join(f'"{coordinate}"' for coordinate in coordinates)
            declared = f"{_WRITTEN}packages = [{listed}]\n"
        with tempfile.TemporaryDirectory() as folder:
            pom = Path(folder) / "pom.xml"
            pom.write_text(pom_of(coordinates))
            self.resolve(pom, target, what=what, without=without, declared=declared)

    def _copy_dependencies(
        self, pom: Path, target: Path, definitions: list[str], what: str
    ) -> None:
        maven = tool(
            "mvn",
            "Maven",
            f"resolve {what}",
            "Install Maven (Debian, Ubuntu: `sudo apt-get install maven`)",
        )
        code, output = self.follow(
            [
                *(maven, "-B", "-f", str(pom), "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={target}"),
                *definitions,
            ],
            r"Downloaded from \S+ \S+/([^/ ]+\.jar) \((.+?)(?: at .+)?\)",
            lambda fetched, found: f"{fetched} fetched: {found[1]} ({found[2]})",
        )
        if code:
            raise DownloadFailed(
                f"Maven could not resolve {what} (code {code}): {_reason(output)}",
                "Check the network and the coordinates, and that Maven can reach its repository "
                "(set a proxy or mirror in ~/.m2/settings.xml). Then try again; finished "
                "downloads are kept.",
            )


def check_coordinates(name: str, coordinates: Sequence[str], recipes: Container[str]) -> None:
    """Raise `DownloadFailed` if a name or Maven coordinates cannot be used."""
    if name in recipes:
        raise DownloadFailed(
            f"{name} is the name of a recipe, which has its own coordinates.",
            "Choose another name for your coordinates.",
        )
    if not _NAME.fullmatch(name):
        raise DownloadFailed(
            f"{name!r} is not a valid connector name.",
            "Use up to 64 lower-case letters, digits, '.', '_' and '-', with a letter first.",
        )
    if wrong := [
        coordinate for coordinate in coordinates if not _COORDINATES.fullmatch(coordinate)
    ]:
        raise DownloadFailed(
            f"{wrong[0]!r} is not in the form of Maven coordinates.",
            "Use GROUP:ARTIFACT:VERSION, such as org.postgresql:postgresql:42.7.14.",
        )


def pip_install(pins: Path, folder: Path) -> list[str]:
    """Return the command that installs pinned packages to a folder.

    Only PySpark has no wheel. It is built with our own setuptools, so nothing else is downloaded,
    and is only unpacked afterwards, so its wheel is not compressed.
    """
    return [
        *(sys.executable, "-m", "pip", "install", "--target", str(folder), "--no-deps"),
        *("--require-hashes", "-r", str(pins), "--no-input", "--progress-bar", "off"),
        *("--only-binary", "numpy,pandas,pyarrow", "--disable-pip-version-check"),
        *("--use-pep517", "--no-build-isolation"),
        "--config-settings=--build-option=--compression=stored",
    ]


def pom_of(coordinates: Sequence[str]) -> str:
    """Return the pom with these dependencies.

    It excludes libraries that Spark contains in jars with other names: Hadoop's modules and logging
    libraries.
    """
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>*</artifactId></exclusion>"
        for group in _INSIDE_SPARK
    )
    dependencies = "".join(
        "    <dependency>"
        f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>\n"
        for group, name, version in (coordinate.split(":") for coordinate in coordinates)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>headgate</groupId><artifactId>connector</artifactId><version>1</version>\n"
        "  <packaging>pom</packaging>\n"
        f"  <dependencies>\n{dependencies}  </dependencies>\n{_PLUGIN}</project>\n"
    )


def artifact(jar: Path) -> str:
    """Return a jar's file name without its version."""
    match = JAR.fullmatch(jar.name)
    return match["artifact"] if match else jar.name.removesuffix(".jar")


def sum_of(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Write the checksums of a folder's jars."""
    lines = [f"{sum_of(jar)}  {jar.name}\n" for jar in sorted(folder.glob("*.jar"))]
    (folder / SUMS).write_text("".join(lines))


def differing(folder: Path, read: Callable[[Path], str] = sum_of) -> list[str]:
    """Return a sentence for each jar that differs from the download; [] without checksums.

    `read` returns a file's SHA-256.
    """
    try:
        lines = (folder / SUMS).read_text(errors="replace").splitlines()
    except OSError:
        return []
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    jars = {jar.name: jar for jar in folder.glob("*.jar")}
    problems = [f"File {name} is missing." for name in sorted(expected.keys() - jars.keys())]
    problems += [
        f"File {name} was added after the download."
        for name in sorted(jars.keys() - expected.keys())
    ]
    problems += [
        f"File {name} differs from what was downloaded."
        for name in sorted(expected.keys() & jars.keys())
        if read(jars[name]) != expected[name]
    ]
    return problems


@contextmanager
def replaced(target: Path, made_of: bytes, *, jars: str = "") -> Iterator[Path | None]:
    """Yield a folder to fill, which then replaces the target; None if the target is up to date.

    The target is not up to date if a jar in its folder `jars` differs from the download.
    """
    digest = hashlib.sha256(made_of).hexdigest()
    stamp = target / STAMP
    same = stamp.exists() and stamp.read_text().strip() == digest
    if same and not differing(target / jars):
        yield None
        return
    missing = [parent for parent in target.parents if not parent.is_dir()]
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
        parent.chmod(0o755)  # our umask is stricter, and another account's worker reads them
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield aside
        (aside / STAMP).write_text(digest + "\n")
        aside.chmod(0o755)
        if target.exists():
            target.rename(aside / ".before")
        aside.rename(target)
        shutil.rmtree(target / ".before", ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def set_aside(target: Path) -> Path:
    """Move a folder away in one step; return the folder to delete."""
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    target.rename(aside / "gone")
    return aside


def tool(program: str, name: str, what: str, way_out: str) -> str:
    """Return the path of the program needed to do `what`; raise `DownloadFailed` without it."""
    path = shutil.which(program)
    if path is None:
        raise DownloadFailed(
            f"{name} is missing: it is needed to {what}.", f"{way_out}; then try again."
        )
    return path


def _reason(output: list[str]) -> str:
    """Return the reason that Maven gave, without surrounding text."""
    errors = [line for line in output if "ERROR" in line]
    reasons = [match[0] for line in errors if (match := _REASON.search(line))]
    return (reasons or [line.partition("ERROR] ")[2] for line in errors] or ["no reason given"])[
        0
    ].strip()


def _end_of(output: list[str]) -> str:
    """Return the last lines of a program's output."""
    return "".join(output[-15:]).strip() or "no reason given"
