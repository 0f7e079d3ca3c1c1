"""The safe way off async progress tracking, on a real broker with the worker killed in the midst.

One query is the story's subject: it runs with gaps in its log, refuses the plain edit, comes
off the safe way while its worker is killed, dies of a gap after all, and is rescued from its
failure page by the form that a browser sends.
"""

import http.cookiejar
import os
import re
import signal
import threading
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from queries.checkpoints.logs import CheckpointLogs
from queries.domain.checkpoints.logs import missing_batch
from tests.conftest_kafka import KafkaBroker
from tests.faults.system import System

pytestmark = [
    pytest.mark.faults,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.redis,
    pytest.mark.timeout(1200),
]

ON = "asyncProgressTrackingEnabled"
EVERY = "asyncProgressTrackingCheckpointIntervalMs"
RATE = 100  # records a second


@pytest.fixture(scope="module")
def system(one_system: System) -> Iterator[System]:
    """Return the shared system; after the last story nothing runs in it."""
    yield one_system
    one_system.rest()


class Story:
    """The query, what feeds it, and what its checkpoint holds."""

    def __init__(self, system: System, broker: KafkaBroker) -> None:
        self.system, self.broker = system, broker
        self.source = broker.topic("in", partitions=2)
        self.sink = broker.topic("out")
        self.sent = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feed")

    def begin(self) -> None:
        self._thread.start()
        servers = {"kafka.bootstrap.servers": self.broker.servers}
        spec = {
            "kind": "sql",
            "sources": [
                {
                    "name": "records",
                    "format": "kafka",
                    "options": {**servers, "subscribe": self.source, "startingOffsets": "earliest"},
                }
            ],
            "sql": "SELECT CAST(value AS STRING) AS value FROM records",
            "sink": {
                "format": "kafka",
                "options": {**servers, "topic": self.sink, ON: "true", EVERY: "3000"},
            },
            "trigger": {"kind": "processing_time", "interval": "200 milliseconds"},
        }
        status, answer = self.system.call(
            "POST",
            "queries/",
            {
                "name": "through",
                "spec": spec,
                "application_spec": {"connectors": ["kafka"], "memory": "1g"},
            },
        )
        assert status == 201, answer
        self.system.verb("through", "start")
        self.system.running("through")

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _feed(self) -> None:
        while not self._over.wait(0.2):
            many = [(None, str(self.sent + number)) for number in range(RATE // 5)]
            self.broker.produce(self.source, many)
            self.sent += len(many)

    @property
    def logs(self) -> CheckpointLogs:
        return CheckpointLogs.at(self.system.query("through")["checkpoint"])

    def exposure(self) -> Any:
        return self.system.get("queries/through/exposure/")["exposure"]

    def options(self) -> dict[str, str]:
        options: dict[str, str] = self.system.query("through")["spec"]["sink"]["options"]
        return options

    def patch(self, **options: Any) -> tuple[int, Any]:
        return self.system.call(
            "PATCH", "queries/through/", {"spec": {"sink": {"options": options}}}
        )

    def done(self, operation: Any) -> Any:
        path = f"operations/{operation['id']}/?wait=30"
        body = self.system.wait(
            f"the end of {operation['verb']}",
            lambda: (found := self.system.get(path))["outcome"] and found,
        )
        assert body["outcome"] == "DONE", body
        return body


@pytest.fixture(scope="module")
def story(system: System, one_broker: KafkaBroker) -> Iterator[Story]:
    one_broker.start()
    found = Story(system, one_broker)
    try:
        found.begin()
        yield found
    finally:
        found.end()


def test_a_plain_edit_is_refused_while_the_log_has_a_gap(story: Story) -> None:
    def gap() -> Any:  # behind a batch that was executed; one in progress has no counted rows
        told = story.exposure()
        return told["missing"] and told["rows_from"] and told

    told = story.system.wait("a gap", gap)
    assert told["batches"] > 0
    assert told["rows_from"] == "offsets"

    def refused() -> Any:  # the log is whole for a moment after each batch that is kept
        status, answer = story.patch(**{ON: None, EVERY: None})
        if status == 200:
            story.patch(**{ON: "true", EVERY: "3000"})
            return None
        return answer

    [problem] = story.system.wait("the refusal", refused)["problems"]
    assert problem["field"] == f"sink.options.{ON}"
    assert "doesn't exist" in problem["message"]


def test_what_a_crash_replayed_is_measured_and_told(story: Story) -> None:
    system = story.system
    before = system.running("through")["current_run"]
    told = system.wait(
        "batches behind the last kept one", lambda: (it := story.exposure())["batches"] and it
    )
    os.kill(before["jvm_pid"], signal.SIGKILL)

    def measured() -> Any:
        run = system.query("through")["current_run"]
        return run and run["id"] != before["id"] and system.get(f"runs/{run['id']}/")["replayed"]

    found = system.wait("what was replayed", measured)
    assert found["batches"] > 0
    assert found["rows"] > 0
    assert found["after"] >= told["kept"]
    assert found["first"] == found["after"] + 1


def _reached(system: System, path: str, step: int) -> bool:
    return bool(system.get(path)["steps"][step]["state"] != "TODO")


def _another(system: System, pid: int) -> bool:
    return bool(system.program("controlplane worker").pid != pid)


def test_it_comes_off_the_safe_way_though_its_worker_is_killed(story: Story) -> None:
    system = story.system
    failed_before = system.get("queries/through/failures/")["results"]
    operation = system.verb("through", "async-off")
    path = f"operations/{operation['id']}/"

    for step in (1, 2):  # while the query restarts, and while it commits
        system.wait(f"step {step}", partial(_reached, system, path, step))
        worker = system.program("controlplane worker")
        worker.kill()
        system.wait("another worker", partial(_another, system, worker.pid))
    ended = story.done(operation)
    assert [step["state"] for step in ended["steps"]] == ["DONE"] * 7
    assert ON not in story.options()
    body = system.running("through")
    assert body["running_revision"] == ended["result"]["off"] == body["revision"]
    batch = system.batch("through")
    system.wait("batches after it", lambda: system.batch("through") > batch + 3)
    assert missing_batch(story.logs.begun()) is None
    assert system.get("queries/through/failures/")["results"] == failed_before


def test_a_query_that_died_of_a_gap_is_rescued_from_its_failure_page(story: Story) -> None:
    system = story.system
    story.done(system.verb("through", "stop", {"mode": "graceful"}))
    logs = story.logs
    begun = logs.begun()
    for name in (str(begun[-2]), f".{begun[-2]}.crc"):  # as tracking, or a hand, leaves it
        (logs.root / "offsets" / name).unlink(missing_ok=True)
    system.verb("through", "start")
    system.wait("its death", lambda: system.query("through")["phase"] == "FAILED")
    [failure, *_] = system.get("queries/through/failures/")["results"]
    # Spark has another text for it if the batch after the gap had been committed.
    gap = rf"batch {begun[-2]} (doesn't exist|not found in offset log)"
    assert re.search(gap, failure["root_cause"])
    browser = Browser(system)
    page = browser.get(f"/failures/{failure['id']}/")
    [address] = set(re.findall(r'href="(/queries/through/async-off/[^"]*)"', page))
    browser.post(address.partition("?")[0], browser.get(address))
    open_ones = system.get("operations/?query=through&open=true")["results"]
    [operation] = [one for one in open_ones if one["verb"] == "async-off"]  # beside its steps
    assert operation["actor"] == "admin"
    story.done(operation)
    assert ON not in story.options()
    system.running("through")
    batch = system.batch("through")
    system.wait("batches after it", lambda: system.batch("through") > batch + 3)


def test_nothing_is_missing_after_all_of_that(story: Story) -> None:
    story.end()
    rows = Counter(str(number) for number in range(story.sent))

    def all_there() -> bool:
        written = {record.value for record in story.broker.read(story.sink)}
        return written >= set(rows)

    story.system.wait("each record in the sink", all_there)


class Browser:
    """Signs in as the first admin and sends forms as a page does, without JavaScript."""

    def __init__(self, system: System) -> None:
        self.base = system.base
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        )
        [password] = re.findall(r"login admin / (\S+)", system.said)
        self.post("/login/", self.get("/login/"), username="admin", password=password)

    def get(self, address: str) -> str:
        """Return a page."""
        with self._opener.open(self.base + address, timeout=60) as answer:
            return str(answer.read().decode())

    def post(self, address: str, page: str, **fields: str) -> str:
        """Send a page's form to an address; return the page that follows."""
        [token, *_] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        sent = urllib.parse.urlencode({"csrfmiddlewaretoken": token, **fields}).encode()
        request = urllib.request.Request(
            self.base + address, data=sent, headers={"Referer": self.base + address}
        )
        with self._opener.open(request, timeout=60) as answer:
            return str(answer.read().decode())
