"""Whoever reaches the ports of a driver gets nothing from them without that driver's own key."""

import re
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from queries.domain.protocol import SPEC, RunState, Want
from queries.runtime.spark_session import makes_its_secret
from tests.security.drivers import strange_asker
from tests.security.drivers.guarded import HELD, NAMED, PATHS, SHOWN, Guarded
from tests.security.drivers.neighbours import SPEC as LISTENING
from tests.security.drivers.neighbours import Neighbours, other_sockets
from tests.spark.driver_under_test import LIMIT_S, rate_query

STRANGER = Path(__file__).with_name("stranger_story.py")
OPEN_DRIVER = Path(__file__).with_name("open_driver_story.py")

#: Silence, or a refusal in the words of py4j's gateway, of its callback server, of Jetty, and of
#: a Python worker, which says its pid before it asks for its key.
REFUSED = re.compile(
    r"|!xsAuthentication error.*|!zspy4j\.Py4JException: Unknown command received.*|!xn\n"
    r"|HTTP/1\.1 40[03] .*|\0\0..(\0\0\0\x03err)?",
    re.DOTALL,
)
#: Callback server and accumulators in Python, gateway, RPC, block manager and UI in the JVM.
AT_LEAST = {"driver": 2, "jvm": 4, "daemon": 1}


@pytest.fixture(scope="module")
def guarded(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(tmp_path_factory.mktemp("guarded"))
    yield one
    one.driver.end()


@pytest.fixture(scope="module")
def neighbours(guarded: Guarded) -> Iterator[Neighbours]:
    home = guarded.driver.home
    both = Neighbours(home, guarded.driver)
    try:
        guarded.driver.start(20, {**LISTENING, "params": {"batches": str(home / "batches")}})
        guarded.driver.wait_run(20, RunState.RUNNING)
        both.ask()
        yield both
    finally:
        both.other.end()


def not_refused(answers: dict[str, str]) -> dict[str, str]:
    return {name: said[:200] for name, said in answers.items() if not REFUSED.fullmatch(said)}


@pytest.mark.guarantee("G-PORT-2", "G-PORT-3")
@pytest.mark.promise
@pytest.mark.spark
def test_no_port_of_a_driver_answers_without_a_key(neighbours: Neighbours) -> None:
    found = Counter(neighbours.ports.values())
    assert all(found[whose] >= many for whose, many in AT_LEAST.items()), found
    for port, answers in strange_asker.ask(neighbours.ports).items():
        assert not_refused(answers) == {}, neighbours.ports[port]


@pytest.mark.guarantee("G-PORT-3")
@pytest.mark.spark
def test_no_port_of_a_driver_answers_another_driver(neighbours: Neighbours) -> None:
    assert {int(port) for port in neighbours.answers} == set(neighbours.ports)
    for port, answers in neighbours.answers.items():
        assert any("with key 2" in name for name in answers)
        assert not_refused(answers) == {}, neighbours.ports[int(port)]


@pytest.mark.spark
def test_the_jvm_calls_python_after_strangers_have_asked(neighbours: Neighbours) -> None:
    """Our listener, a user's, a script's own, foreachBatch: none was removed, and none is deaf."""
    neighbours.go_on()


@pytest.mark.spark
def test_a_driver_listens_on_no_socket_but_of_tcp(neighbours: Neighbours) -> None:
    assert other_sockets(neighbours.victim) == []


@pytest.mark.guarantee("G-UI-6")
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
    assert conf[f"spark.{conf['spark.ui.filters']}.param.secretKey"] == "*********(redacted)"


@pytest.mark.guarantee("G-SECRET-5")
@pytest.mark.spark
def test_sparks_own_pages_mask_what_the_table_of_secrets_names(guarded: Guarded) -> None:
    conf = guarded.configuration()
    told = {name: conf[name] for name in NAMED | HELD}
    assert told == dict.fromkeys(told, "*********(redacted)")
    assert {name: conf[name] for name in SHOWN} == SHOWN


@pytest.mark.guarantee("G-PORT-4")
@pytest.mark.spark
def test_no_list_of_processes_shows_the_key(guarded: Guarded) -> None:
    assert guarded.status.jvm_pid is not None
    jvm = psutil.Process(guarded.status.jvm_pid)
    said = " ".join([*jvm.cmdline(), *jvm.environ().values()])
    assert "secretKey" not in said
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


@pytest.mark.guarantee("G-PORT-1")
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
    guarded.driver.request_end(10, Want.STOP)
    guarded.driver.wait_run(10, RunState.ENDED)


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]", "yarn", "k8s://https://h:1"])
def test_spark_itself_makes_the_secret_where_it_can(master: str) -> None:
    assert makes_its_secret(master)


def test_a_standalone_cluster_has_one_secret_that_only_its_admin_could_give() -> None:
    assert not makes_its_secret("spark://127.0.0.1:7077")
