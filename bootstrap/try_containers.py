"""Test the image and the compose file on this host's container engine, and measure them.

    python bootstrap/try_containers.py [--stand-ins] [--build-network host]

The script builds the image, starts everything as a separate project, runs the README's first query,
kills and recreates the worker, redis, postgres and web services while a query writes files, and
compares the files with a batch over the same input. At the end, it removes the project, but not the
images. The last line is JSON. `--stand-ins` uses base images built from Debian's archive, if no
registry can be reached.
"""

import argparse
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import stand_ins
from engine import BUILD_LIMIT_S, IMAGE, Engine, wait
from run import REPOSITORY, fail, print_line

#: Services to kill and recreate, in this order.
VICTIMS = ("worker", "redis", "postgres", "web")
LONG_LIVED = ("web", "worker", "ingester", "redis", "postgres")
OUT = "/var/lib/headgate/out/kept"
FIGURES: dict[str, float | int] = {}


def main() -> None:
    """Test everything; exit with 1 and a message if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stand-ins", action="store_true")
    parser.add_argument("--build-network", choices=("default", "host"), default="default")
    options = parser.parse_args()
    stand_ins.insist_on_engine()
    images = dict(stand_ins.STAND_INS) if options.stand_ins else {}
    if images:
        print_line("Using stand-ins for the base images.")
        stand_ins.make(options.build_network)
    else:
        stand_ins.pull()
    with tempfile.TemporaryDirectory(prefix="headgate-try-") as folder:
        engine = Engine(Path(folder), images, options.build_network)
        try:
            _try(engine)
        except (TimeoutError, RuntimeError, subprocess.TimeoutExpired) as error:
            sys.stderr.write(engine.compose("logs", "--no-color", "--tail", "40"))
            fail(str(error), "The last lines of each container are above.")
        finally:
            engine.down()
            for name, value in FIGURES.items():
                print_line(f"{name.replace('_', ' '):<34}{value:>10}")
    print_line(json.dumps(FIGURES))


def _try(engine: Engine) -> None:
    with _timed("build_s", "Building the image…"):
        engine.compose("build", "web", limit_s=BUILD_LIMIT_S)
    FIGURES["image_mb"] = int(engine.docker("image", "inspect", "-f", "{{.Size}}", IMAGE)) // 10**6
    with _timed("all_healthy_s", "Starting everything…"):
        engine.compose("up", "--detach", "--no-build")
        for service in LONG_LIVED:
            wait(f"{service} healthy", partial(engine.healthy, service))
    _begin(engine)
    first = _readme_query()
    _first_query(engine, first)
    second = _second_query(first)
    engine.call("POST", "queries/", second)
    with _timed(
        "second_query_start_s", ("Starting a query that writes files, with the Kafka connector…")
    ):
        engine.verb("kept", "start")
    _jars_are_on_the_class_path(engine)
    for service in VICTIMS:
        _outlive(engine, service, "killed", engine.crash)
    for service in VICTIMS:
        _outlive(engine, service, "recreated", engine.recreate)
    FIGURES["load"] = round(os.getloadavg()[1], 1)  # five-minute load: what else the machine did
    engine.verb("kept", "stop")
    _compare(engine, second["spec"])


def _begin(engine: Engine) -> None:
    engine.compose(
        *("exec", "-T", "-e", f"DJANGO_SUPERUSER_PASSWORD={secrets.token_urlsafe(12)}", "web"),
        *("python", "manage.py", "createsuperuser", "--no-input", "--username", "admin"),
        *("--email", "admin@example.org"),
    )
    engine.token = engine.compose(
        "exec", "-T", "web", "python", "manage.py", "createtoken", "admin"
    ).strip()
    [connector] = engine.call("GET", "connectors/")["results"]
    print_line(f"Connector {connector['name']}: {len(connector['jars'])} jars")


def _readme_query() -> dict[str, Any]:
    readme = (REPOSITORY / "README.md").read_text()
    match = re.search(r"/api/v1/queries/\".*?-d '(\{.*?\})'\n", readme, re.DOTALL)
    if match is None:
        raise RuntimeError("README.md has no first query.")
    definition: dict[str, Any] = json.loads(match[1])
    return definition


def _first_query(engine: Engine, definition: dict[str, Any]) -> None:
    engine.call("POST", "queries/", definition)
    with _timed("first_query_start_s", "Running the README's first query…"):
        engine.verb(definition["name"], "start")
    engine.verb(definition["name"], "stop")


def _second_query(first: dict[str, Any]) -> dict[str, Any]:
    """Return the README's query, which writes files, in an application that has a connector."""
    return {
        "name": "kept",
        "application_spec": {**first["application_spec"], "connectors": ["kafka"]},
        "spec": {**first["spec"], "sink": {"format": "parquet", "options": {"path": OUT}}},
    }


def _jars_are_on_the_class_path(engine: Engine) -> None:
    run = (engine.call("GET", "queries/kept/") or {})["current_run"]
    command_line = engine.compose("exec", "-T", "worker", "cat", f"/proc/{run['jvm_pid']}/cmdline")
    if "spark-sql-kafka" not in command_line:
        raise RuntimeError(f"The driver's JVM has no Kafka connector: {command_line}")


def _outlive(engine: Engine, service: str, how: str, strike: Callable[[str], object]) -> None:
    """Crash or recreate a service; record the seconds until it is healthy and until a new batch."""
    print_line(f"{service}: {how}…")
    before = engine.state(service)["State"]["StartedAt"]
    began = time.monotonic()
    strike(service)
    at = datetime.now(UTC)  # until now, a batch may come from the old container
    signs: dict[str, Callable[[], bool]] = {
        "healthy": lambda: engine.healthy(service, other_than=before),
        "batches": lambda: engine.batch_since("kept", at) is not None,
    }

    def both() -> bool:
        for sign in [name for name, is_back in signs.items() if is_back()]:
            del signs[sign]
            FIGURES[f"{service}_{how}_{sign}_s"] = round(time.monotonic() - began, 1)
        return not signs

    wait(f"{service} healthy, and a batch", both)


def _compare(engine: Engine, spec: dict[str, Any]) -> None:
    print_line("Comparing the sink with a batch over the same input…")
    body = engine.call("GET", "queries/kept/")
    FIGURES["batches_told_missing"] = (
        body["dropped_events"]["missing_batches"] - body["dropped_events"]["repaired"]
    )
    # Spark unpacks native code there; files below /tmp cannot be executed.
    java_options = "-Djava.io.tmpdir=/var/lib/headgate"
    output = engine.compose(
        *("exec", "-T", "-e", f"JDK_JAVA_OPTIONS={java_options}", "worker", "python", "-"),
        *(OUT, body["checkpoint"].removeprefix("file://")),
        *(spec["sources"][0]["options"]["rowsPerSecond"], spec["sql"]),
        text=Path(__file__).with_name("sink_check.py").read_text(),
    )
    figures: dict[str, int] = json.loads(output.strip().splitlines()[-1])
    FIGURES.update({f"sink_{name}": count for name, count in figures.items()})
    if not figures["rows"] or figures["missing"] or figures["too_many"]:
        raise RuntimeError(f"The sink differs from the batch: {figures}")


@contextmanager
def _timed(name: str, what: str) -> Iterator[None]:
    print_line(what)
    began = time.monotonic()
    yield
    FIGURES[name] = round(time.monotonic() - began, 1)


if __name__ == "__main__":
    main()
