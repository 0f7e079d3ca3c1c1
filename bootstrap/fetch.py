"""Download connectors, Spark versions and trial servers, then start the server.

    python bootstrap/fetch.py kafka | s3 | hadoop | kubernetes | rest-catalog [--jars]
    python bootstrap/fetch.py --connector [add] NAME [GROUP:ARTIFACT:VERSION…] [--spark VERSION]
    python bootstrap/fetch.py --connector list | remove NAME [--spark VERSION]
    python bootstrap/fetch.py --sparks [add] [VERSION…] | list | remove VERSION

With `--jars`, nothing is started; only tests start `rest-catalog`. `add` can be left out; several
connectors with a recipe can be added at once. `list` and `remove` need the database, and are Django
commands. Maven resolves the coordinates in `connectors/*/pom.xml`, pip installs
`connectors/sparks/*.txt`, javac compiles the programs of Hadoop and the REST catalog, and Go builds
the S3 gateway (`headgate_server.downloads`) and Kubernetes (`headgate_server.kubernetes`).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from run import REPOSITORY, fail, follow, print_line

sys.path.append(str(REPOSITORY))  # last: in a wheel, the installed packages are found first
from headgate_server import kubernetes as trial_kubernetes
from headgate_server.downloads import DownloadFailed, Downloads, replaced, tool

HOME = Path(os.environ.get("HEADGATE_HOME") or REPOSITORY / "var").resolve()
DOWNLOADS = Downloads(
    recipes=REPOSITORY / "connectors",
    connectors=Path(os.environ.get("HEADGATE_CONNECTORS") or HOME / "connectors").resolve(),
    sparks=HOME / "sparks",
    report=print_line,
    follow=follow,
)
#: A real S3 gateway, by its Go module; a new version is tried with the tests marked `s3`.
GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
OLDEST_GO = "1.25"  # the `go` line in the gateway's go.mod
_CLASSES_FOR = "17"  # the oldest Java that Spark 4.3 runs on


def main(arguments: list[str]) -> None:
    """Download missing files, then exec the command that starts the server."""
    for flag, command in (("--sparks", "spark"), ("--connector", "connector")):
        if flag in arguments:
            words = [argument for argument in arguments if argument != flag]
            if words[:1] in (["list"], ["remove"]):
                _become_command(command, *words)
            words = words[1:] if words[:1] == ["add"] else words
            (sparks if command == "spark" else connectors)(words)
            return
    names = [argument for argument in arguments if not argument.startswith("-")]
    trials = {
        **{"kafka": kafka, "s3": s3, "hadoop": hadoop, "kubernetes": kubernetes},
        "rest-catalog": rest_catalog,
    }
    if len(names) != 1 or names[0] not in trials:
        fail(f"There is no trial server {' '.join(names)!r}.", f"Choose {', '.join(trials)}.")
    if names == ["kubernetes"] and "--jars" not in arguments:  # before the build, which takes long
        trial_kubernetes.check(trial_kubernetes.missing_to_run())
    trials[names[0]]()
    if "--jars" not in arguments and names != ["rest-catalog"]:
        _become_command(names[0])


def _become_command(*arguments: str) -> None:
    """Exec a Django command."""
    os.execv(sys.executable, [sys.executable, "-m", "headgate_server", "manage", *arguments])


def sparks(versions: list[str]) -> None:
    """Download Spark versions other than Headgate's own; all of them if none is named."""
    for version in versions:
        DOWNLOADS.check_version(version)
    for version in versions or DOWNLOADS.versions():
        DOWNLOADS.spark(version)


def connectors(arguments: list[str]) -> None:
    """Download connectors by their recipes (Kafka's if none is named), or one by coordinates."""
    version = ""
    if "--spark" in arguments:
        position = arguments.index("--spark")
        version = "".join(arguments[position + 1 : position + 2])
        DOWNLOADS.check_version(version)
        arguments = arguments[:position] + arguments[position + 2 :]
    coordinates = [argument for argument in arguments if ":" in argument]
    names = [argument for argument in arguments if ":" not in argument] or ["kafka"]
    if coordinates and len(names) != 1:
        fail(f"The coordinates need one name, not {' '.join(names)!r}.", "Choose a name.")
    if unknown := [
        argument
        for argument in names
        if argument not in DOWNLOADS.recipe_names() and not coordinates
    ]:
        fail(
            f"There is no recipe for {', '.join(unknown)}.",
            f"Choose {', '.join(DOWNLOADS.recipe_names())}, or name Maven coordinates: "
            f"{unknown[0]} GROUP:ARTIFACT:VERSION.",
        )
    for name in names:
        DOWNLOADS.connector(name, version, coordinates)


def kafka() -> None:
    """Download the connector and the broker."""
    DOWNLOADS.connector("kafka")
    _resolve("broker", HOME / "kafka" / "jars", what="the trial broker")


def s3() -> None:
    """Download the connector, and build the gateway."""
    DOWNLOADS.connector("s3")
    target = HOME / "s3" / "bin"
    with replaced(target, GATEWAY.encode()) as folder:
        if folder:
            print_line("Building the S3 gateway with Go; this takes a minute or two…")
            _build_gateway(folder)
            print_line(f"  versitygw {GATEWAY.rpartition('@')[2]}, in {target}")


def hadoop() -> None:
    """Download the jars of HDFS and YARN, and compile the program that runs them."""
    jars = HOME / "hadoop" / "jars"
    _resolve("hadoop", jars, what="the trial Hadoop cluster")
    source = REPOSITORY / "connectors" / "hadoop"
    program, logging = source / "MiniHadoop.java", source / "log4j.properties"
    made_of = program.read_bytes() + logging.read_bytes()
    with replaced(HOME / "hadoop" / "classes", made_of) as folder:
        if folder:
            _compile(program, jars, folder)
            shutil.copy(logging, folder)


def kubernetes() -> None:
    """Build the programs of Kubernetes, and the images for its pods."""
    trial_kubernetes.Builder(
        REPOSITORY / "connectors" / "kubernetes",
        HOME / "kubernetes",
        report=print_line,
        follow=follow,
    ).build()


def rest_catalog() -> None:
    """Download the jars of Iceberg's REST catalog, and compile the program that runs it."""
    jars = HOME / "rest-catalog" / "jars"
    _resolve("rest-catalog", jars, what="the trial REST catalog")
    program = REPOSITORY / "connectors" / "rest-catalog" / "TrialCatalog.java"
    with replaced(HOME / "rest-catalog" / "classes", program.read_bytes()) as folder:
        if folder:
            _compile(program, jars, folder)


def _resolve(name: str, target: Path, *, what: str) -> None:
    DOWNLOADS.resolve(REPOSITORY / "connectors" / name / "pom.xml", target, what=what)


def _build_gateway(folder: Path) -> None:
    go = tool(
        "go",
        "Go",
        "build the S3 gateway",
        f"Install Go {OLDEST_GO} or newer (https://go.dev/dl/) and add its `bin` folder to PATH",
    )
    code, output = follow(
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
        sys.stderr.write("".join(output[-15:]))
        fail(
            f"Go could not build {GATEWAY} (code {code}).",
            f"Check that `go version` prints {OLDEST_GO} or newer, and that Go can reach its "
            "module proxy (set GOPROXY otherwise). Then try again.",
        )


def _compile(source: Path, jars: Path, folder: Path) -> None:
    javac = tool(
        "javac",
        "javac",
        f"compile {source.name}",
        "Install a JDK (Debian, Ubuntu: `sudo apt-get install openjdk-17-jdk-headless`)",
    )
    code, output = follow(
        [javac, "--release", _CLASSES_FOR, "-cp", f"{jars}/*", "-d", str(folder), str(source)],
        "(?!)",  # it prints errors only
        lambda _, found: found[0],
    )
    if code:
        sys.stderr.write("".join(output[-15:]))
        fail(
            f"javac could not compile {source.name} (code {code}).",
            f"Use the javac of a JDK {_CLASSES_FOR} or newer.",
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DownloadFailed as error:
        fail(error.problem, error.way_out)
    except KeyboardInterrupt:
        sys.exit(130)
