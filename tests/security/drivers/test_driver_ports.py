"""Whoever reaches the ports of a driver gets nothing from them without that driver's own key."""

import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from controlplane.machine.ports import free_ports
from controlplane.spark_ui import jws
from queries.domain.protocol import SPEC, RunState, Status, Want
from queries.runtime.spark_session import makes_its_secret
from tests.spark.driver_under_test import LIMIT_S, DriverUnderTest, rate_query

STRANGER = Path(__file__).with_name("stranger_story.py")
OPEN_DRIVER = Path(__file__).with_name("open_driver_story.py")

#: A path of each kind: pages, files, REST, metrics, and what is not there.
PATHS = (
    *("/", "/jobs/", "/environment/", "/executors/threadDump/?executorId=driver"),
    *("/StreamingQuery/", "/static/webui.js", "/api/v1/applications", "/api/v1/version"),
    *("/metrics/json/", "/metrics/prometheus/", "/metrics/executors/prometheus", "/nothing"),
)


class Guarded:
    """A real driver, and the key of its Spark UI."""

    def __init__(self, home: Path) -> None:
        self.key = secrets.token_bytes(32)
        self.port = next(free_ports())
        self.driver = DriverUnderTest(home)
        self.driver.launch(ui_port=self.port, ui_key=self.key.hex())
        self.status: Status = self.driver.ready()

    def ask(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Return status and text of a path of its UI."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def token(self, key: bytes | None = None, *, age: timedelta = timedelta(0)) -> str:
        return jws.token(key or self.key, now=datetime.now(UTC) - age)

    def configuration(self) -> dict[str, str]:
        """Return Spark's configuration as its REST tells it."""
        place = f"/api/v1/applications/{self.status.application_id}/environment"
        said: dict[str, Any] = orjson.loads(self.ask(place, self.token())[1])
        return dict(said["sparkProperties"])


@pytest.fixture(scope="module")
def guarded(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(tmp_path_factory.mktemp("guarded"))
    yield one
    one.driver.end()


@pytest.mark.spark
@pytest.mark.parametrize("path", PATHS)
def test_a_spark_ui_answers_nobody_without_its_key(guarded: Guarded, path: str) -> None:
    assert guarded.ask(path)[0] == 403
    assert guarded.ask(path, guarded.token(secrets.token_bytes(32)))[0] == 403, "another driver's"
    assert guarded.ask(path, guarded.token(age=timedelta(minutes=2)))[0] == 403, "an old one"
    assert guarded.ask(path, guarded.token())[0] in (200, 404)


@pytest.mark.spark
def test_what_the_ui_shows_of_its_key_is_masked(guarded: Guarded) -> None:
    conf = guarded.configuration()
    assert conf["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    [shown] = [value for name, value in conf.items() if name.endswith("JWSFilter.param.secretKey")]
    assert shown == "*********(redacted)"


@pytest.mark.spark
def test_no_list_of_processes_shows_the_key(guarded: Guarded) -> None:
    assert guarded.status.jvm_pid is not None
    jvm = psutil.Process(guarded.status.jvm_pid)
    said = " ".join([*jvm.cmdline(), *jvm.environ().values()])
    assert "JWSFilter" not in said
    assert guarded.key.hex() not in said
    spec = guarded.driver.directory / "control" / SPEC
    assert spec.stat().st_mode & 0o077 == 0


def _tries(port: int, *secret: str) -> str:
    """Return what a stranger's JVM says of its try."""
    done = subprocess.run(
        [sys.executable, str(STRANGER), str(port), *secret],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.spark
@pytest.mark.parametrize("secret", [(), ("another application's secret",)], ids=["none", "another"])
def test_no_other_jvm_gets_into_a_driver(guarded: Guarded, secret: tuple[str, ...]) -> None:
    conf = guarded.configuration()
    assert conf["spark.authenticate"] == "true"
    assert _tries(int(conf["spark.driver.port"]), *secret).startswith("out: ")


@pytest.mark.spark
def test_without_the_secret_every_jvm_of_the_host_gets_in(java_home: str) -> None:
    with subprocess.Popen(
        [sys.executable, str(OPEN_DRIVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        try:
            told = _tries(int(driver.stdout.readline()))
        finally:
            driver.communicate("\n", timeout=LIMIT_S)
    assert told.startswith("in: ")
    assert "BlockManagerId(driver" in told


@pytest.mark.spark
def test_a_query_with_a_shuffle_works_behind_the_secret(guarded: Guarded) -> None:
    sql = "SELECT value % 3 AS third, count(*) AS many FROM numbers GROUP BY value % 3"
    sink = {"format": "noop", "output_mode": "complete"}
    guarded.driver.start(10, rate_query(sql=sql, sink=sink))
    guarded.driver.wait_run(10, RunState.RUNNING)
    guarded.driver.ask(10, Want.STOP)
    guarded.driver.wait_run(10, RunState.ENDED)


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]", "yarn", "k8s://https://h:1"])
def test_spark_itself_makes_the_secret_where_it_can(master: str) -> None:
    assert makes_its_secret(master)


def test_a_standalone_cluster_has_one_secret_that_only_its_admin_could_give() -> None:
    assert not makes_its_secret("spark://127.0.0.1:7077")
