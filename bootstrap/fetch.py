"""Download connectors and trial servers, then start the server.

    python bootstrap/fetch.py kafka | s3 | hadoop [--jars]
    python bootstrap/fetch.py --connector [NAME…] [--spark VERSION]
    python bootstrap/fetch.py --sparks [VERSION…]

With `--jars`, nothing is started; with `--connector`, only connectors are downloaded, for another
version of Spark if that is named; with `--sparks`, only these versions of Spark. Maven resolves the
coordinates in `connectors/*/pom.xml`, pip installs `connectors/sparks/*.txt`, javac compiles
Hadoop's program, and Go builds the S3 gateway. Each folder is replaced as a whole and contains the
digest of its source: if the digest matches, nothing is downloaded and no network is needed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from run import REPOSITORY, fail, follow, say

HOME = Path(os.environ.get("HEADGATE_HOME") or REPOSITORY / "var").resolve()
SPARKS = HOME / "sparks"
CONNECTORS = Path(os.environ.get("HEADGATE_CONNECTORS") or HOME / "connectors").resolve()
#: A real S3 gateway, by its Go module; a new version is tried with the tests marked `s3`.
GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
OLDEST_GO = "1.25"  # the `go` line in the gateway's go.mod
_CLASSES_FOR = "17"  # the oldest Java that Spark 4.3 runs on
_STAMP = ".pom.sha256"  # of whatever the folder is made of; first it was always a pom


def main(arguments: list[str]) -> None:
    """Download what is missing, then exec the command that starts the server."""
    version = ""
    if "--spark" in arguments:
        place = arguments.index("--spark")
        version = _of_spark("".join(arguments[place + 1 : place + 2]))
        arguments = arguments[:place] + arguments[place + 2 :]
    names = [one for one in arguments if not one.startswith("-")]
    if "--sparks" in arguments:
        for name in [_of_spark(name) for name in names] or sorted(_sparks()):
            spark(name)
        return
    if "--connector" in arguments:
        for name in _known(names or ["kafka"]):
            connector(name, version)
        return
    trials = {"kafka": kafka, "s3": s3, "hadoop": hadoop}
    if len(names) != 1 or names[0] not in trials:
        fail(f"There is no trial server {' '.join(names)!r}.", f"Choose {', '.join(trials)}.")
    trials[names[0]]()
    if "--jars" not in arguments:
        command = (sys.executable, "-m", "headgate_server", "manage", names[0])
        os.execv(sys.executable, command)


def kafka() -> None:
    """Download the connector and the broker."""
    connector("kafka")
    resolve("broker", HOME / "kafka" / "jars", what="the trial broker")


def s3() -> None:
    """Download the connector, and build the gateway."""
    connector("s3")
    target = HOME / "s3" / "bin"
    with _made(target, GATEWAY.encode()) as folder:
        if folder:
            say("Building the S3 gateway with Go; this takes a minute or two…")
            _build_gateway(folder)
            say(f"  versitygw {GATEWAY.rpartition('@')[2]}, in {target}")


def hadoop() -> None:
    """Download the jars of HDFS and YARN, and compile the program that runs them."""
    jars = HOME / "hadoop" / "jars"
    resolve("hadoop", jars, what="the trial Hadoop cluster")
    source = REPOSITORY / "connectors" / "hadoop"
    program, logging = source / "MiniHadoop.java", source / "log4j.properties"
    made_of = program.read_bytes() + logging.read_bytes()
    with _made(HOME / "hadoop" / "classes", made_of) as folder:
        if folder:
            _compile(program, jars, folder)
            shutil.copy(logging, folder)


def spark(version: str) -> None:
    """Download a version of Spark other than Headgate's own, and build its package if needed."""
    pins = _sparks()[version]
    with _made(SPARKS / version, pins.read_bytes()) as folder:
        if folder is None:
            return
        say(f"Installing Spark {version}: a download of 450 MB, then a minute of unpacking…")
        code, said = follow(
            [
                *(sys.executable, "-m", "pip", "install", "--target", str(folder), "--no-deps"),
                *("--require-hashes", "-r", str(pins), "--no-input", "--progress-bar", "off"),
                "--disable-pip-version-check",
            ],
            r"^\s*(?:Collecting|Building wheel for) ([\w.-]+)",
            lambda _, found: found[1],
            steps={"Installing collected": "unpacking…"},
        )
        if code or not (folder / "pyspark" / "jars").is_dir():
            sys.stderr.write("".join(said[-15:]))
            fail(
                f"pip could not install Spark {version} (code {code}).",
                "Check the network and the free disk space (1 GB is needed). Then try again.",
            )
    say(f"  Spark {version}, in {SPARKS / version}")


def _sparks() -> dict[str, Path]:
    """Return the pinned packages of each version of Spark that can be installed."""
    return {path.stem: path for path in REPOSITORY.glob("connectors/sparks/*.txt")}


def _of_spark(version: str) -> str:
    if version not in _sparks():
        fail(f"Spark {version!r} cannot be installed.", f"Choose {', '.join(sorted(_sparks()))}.")
    return version


def connector(name: str, spark_version: str = "") -> None:
    """Download a connector, for Headgate's own version of Spark or for another."""
    what = f"the connector {name}"
    if not spark_version:
        resolve(name, CONNECTORS / name, what=what)
        return
    recipe = tomllib.loads((REPOSITORY / "connectors" / name / "connector.toml").read_text())
    versions = recipe.get("versions", {})
    if spark_version not in versions:
        known = ", ".join(sorted(versions)) or "none other than Headgate's own"
        fail(f"The connector {name} has no recipe for Spark {spark_version}.", f"It has {known}.")
    resolve(
        name,
        CONNECTORS / spark_version / name,
        what=f"{what} for Spark {spark_version}",
        properties=versions[spark_version],
    )


def _known(names: list[str]) -> list[str]:
    """Return the names of connectors, each of which must have a recipe."""
    known = sorted(path.parent.name for path in REPOSITORY.glob("connectors/*/connector.toml"))
    if unknown := [name for name in names if name not in known]:
        fail(f"There is no recipe for {', '.join(unknown)}.", f"Choose {', '.join(known)}.")
    return names


@contextmanager
def _made(target: Path, made_of: bytes) -> Iterator[Path | None]:
    """Yield a folder to fill, which then replaces the target; None if the target is up to date."""
    digest = hashlib.sha256(made_of).hexdigest()
    stamp = target / _STAMP
    if stamp.exists() and stamp.read_text().strip() == digest:
        yield None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield aside
        (aside / _STAMP).write_text(digest + "\n")
        aside.chmod(0o755)
        if target.exists():
            target.rename(aside / ".before")
        aside.rename(target)
        shutil.rmtree(target / ".before", ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _tool(program: str, name: str, what: str, way_out: str) -> str:
    """Return a program on the PATH, which is needed to do `what`."""
    found = shutil.which(program)
    if found is None:
        fail(f"{name} is missing: it is needed to {what}.", f"{way_out}; then try again.")
    return str(found)


def _build_gateway(folder: Path) -> None:
    go = _tool(
        "go",
        "Go",
        "build the S3 gateway",
        f"Install Go {OLDEST_GO} or newer (https://go.dev/dl/) and add its `bin` folder to PATH",
    )
    code, said = follow(
        [
            "env",
            f"GOBIN={folder}",
            "CGO_ENABLED=0",
            go,
            "install",
            "-trimpath",
            "-ldflags=-s -w",
            GATEWAY,
        ],
        r"go: downloading (\S+) (\S+)",
        lambda fetched, found: f"{fetched} fetched: {found[1]} {found[2]}",
    )
    if code:
        sys.stderr.write("".join(said[-15:]))
        fail(
            f"Go could not build {GATEWAY} (code {code}).",
            f"Check that `go version` prints {OLDEST_GO} or newer, and that Go can reach its "
            "module proxy (set GOPROXY otherwise). Then try again.",
        )


def _compile(source: Path, jars: Path, folder: Path) -> None:
    javac = _tool(
        "javac",
        "javac",
        "compile the program that runs HDFS and YARN",
        "Install a JDK (Debian, Ubuntu: `sudo apt-get install openjdk-17-jdk-headless`)",
    )
    code, said = follow(
        [javac, "--release", _CLASSES_FOR, "-cp", f"{jars}/*", "-d", str(folder), str(source)],
        "(?!)",  # it prints errors only
        lambda _, found: found[0],
    )
    if code:
        sys.stderr.write("".join(said[-15:]))
        fail(
            f"javac could not compile {source.name} (code {code}).",
            f"Use the javac of a JDK {_CLASSES_FOR} or newer.",
        )


def resolve(
    name: str, target: Path, *, what: str, properties: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Make Maven copy the jars for `connectors/NAME/pom.xml` to a folder, unless they exist."""
    pom = REPOSITORY / "connectors" / name / "pom.xml"
    given = [f"-D{key}={value}" for key, value in sorted(properties.items())]
    with _made(target, pom.read_bytes() + "".join(given).encode()) as folder:
        if folder is None:
            return
        maven = _tool(
            "mvn",
            "Maven",
            f"resolve {what}",
            "Install Maven (Debian, Ubuntu: `sudo apt-get install maven`)",
        )
        say(f"Resolving {what} by Maven…")
        _copy_dependencies(maven, pom, folder, given)
    jars = sorted(target.glob("*.jar"))
    size = sum(jar.stat().st_size for jar in jars) / 1e6
    say(f"  {len(jars)} jars, {size:.0f} MB, in {target}")


def _copy_dependencies(maven: str, pom: Path, target: Path, given: list[str]) -> None:
    code, said = follow(
        [
            *(maven, "-B", "-f", str(pom), "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={target}"),
            *given,
        ],
        r"Downloaded from \S+ \S+/([^/ ]+\.jar) \((.+?)(?: at .+)?\)",
        lambda fetched, found: f"{fetched} fetched: {found[1]} ({found[2]})",
    )
    if code:
        sys.stderr.write("".join(line for line in said if "ERROR" in line)[:4000])
        fail(
            f"Maven could not resolve {pom.relative_to(REPOSITORY)} (code {code}).",
            "Check the network, and that Maven can reach its repository (set a proxy or mirror "
            "in ~/.m2/settings.xml). Then try again; files that have been downloaded are not "
            "downloaded again.",
        )
    if not any(target.glob("*.jar")):
        fail(f"Maven did not copy any jar for {pom.relative_to(REPOSITORY)}.", "Check that file.")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
