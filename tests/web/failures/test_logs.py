"""The log of a query's drivers: every driver, searched, followed, linked to, downloaded, masked."""

import re
from copy import deepcopy
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from controlplane.masking import IN_REQUEST
from headgate_ground.masking import MASK, LocalSearcher
from queries.services import failures
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

LOG = """26/11/23 16:13:16 INFO SparkContext: hello
26/11/23 16:13:17 WARN Utils: careful
26/11/23 16:13:29 ERROR MicroBatchExecution: Query terminated
java.lang.ArithmeticException: / by <zero>
26/11/23 16:13:30 INFO SparkContext: password=hunter2hunter2
"""


@pytest.fixture(scope="module")
def played(story: None) -> Stage:
    stage = Stage()
    stage.query("delays")
    stage.up("delays")
    stage.launcher.log("delays", stage.driver("delays").epoch, LOG)
    return stage


@pytest.fixture
def stage(played: Stage, db: None) -> Stage:
    return deepcopy(played)


@pytest.fixture
def vera(client: Client, viewer: User, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr("queries.views.failures.logs.launcher", lambda: stage.launcher)
    client.force_login(viewer)
    return client


@pytest.fixture
def delays(stage: Stage) -> Stage:
    """Return the stage, where delays runs and its driver has logged."""
    return stage


def _lines(client: Client, address: str) -> list[str]:
    answer = client.get(address)
    assert answer.status_code == 200
    text = answer.content.decode()
    found = re.findall(r'<span class="log-line"[^>]*><a [^>]*></a>(.*?)\n</span>', text, re.DOTALL)
    return [unescape(line) for line in found]


def test_the_newest_lines_are_shown_masked(vera: Client, delays: Stage) -> None:
    lines = _lines(vera, "/queries/delays/log/")
    assert lines[0] == "26/11/23 16:13:16 INFO SparkContext: hello"
    assert lines[3] == "java.lang.ArithmeticException: / by <zero>"
    assert "hunter2" not in "".join(lines)
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("asked", "count"),
    [("q=zero", 1), ("level=error", 2), ("level=warn", 3), ("q=hunter2hunter2", 0), ("level=x", 5)],
)
def test_lines_are_found_by_words_and_level(
    vera: Client, delays: Stage, asked: str, count: int
) -> None:
    assert len(_lines(vera, f"/queries/delays/log/?{asked}")) == count


def test_a_line_has_an_address_that_stays_while_the_log_grows(vera: Client, delays: Stage) -> None:
    page = Page(vera, "/queries/delays/log/")
    (link,) = re.findall(
        r'<a href="/queries/delays/log/\?([^"]*)#at-\d+" aria-label[^>]*></a>26/11/23 16:13:29',
        page.html,
    )
    delays.launcher.log("delays", delays.driver("delays").epoch, LOG + LOG)
    shown = vera.get(f"/queries/delays/log/?{unescape(link)}").content.decode()
    assert re.search(r"data-linked><a [^>]*></a>26/11/23 16:13:29 ERROR", shown)


def test_a_page_follows_from_its_end_by_whole_lines(vera: Client, delays: Stage) -> None:
    epoch = delays.driver("delays").epoch
    page = Page(vera, "/queries/delays/log/")
    (follow,) = re.findall(r'hx-get="([^"]+)"', page.html)
    delays.launcher.log("delays", epoch, LOG + "next\nhalf a li")
    assert _lines(vera, unescape(follow)) == ["next"]
    answer = vera.get(unescape(follow)).content.decode()
    (follow,) = re.findall(r'hx-get="([^"]+)"', answer)
    delays.launcher.log("delays", epoch, LOG + "next\nhalf a line\n")
    assert _lines(vera, unescape(follow)) == ["half a line"]
    delays.launcher.log("delays", epoch, "begun anew\n")  # it was emptied
    assert _lines(vera, unescape(follow)) == ["begun anew"]


def test_long_logs_are_read_backwards_without_a_line_lost(
    vera: Client, delays: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "SHOWN", 300)
    written = [f"line {number:04}" for number in range(200)]
    delays.launcher.log("delays", delays.driver("delays").epoch, "\n".join(written) + "\n")
    found: list[str] = []
    address = "/queries/delays/log/"
    while address:
        found = _lines(vera, address) + found
        older = re.findall(r'rel="prev" href="(\?[^"]+)"', vera.get(address).content.decode())
        address = f"/queries/delays/log/{unescape(older[0])}" if older else ""
    assert found == written


def test_a_search_goes_on_further_back(
    vera: Client, delays: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "SEARCHED", 300)
    text = "the needle\n" + "hay\n" * 200
    delays.launcher.log("delays", delays.driver("delays").epoch, text)
    address, steps = "/queries/delays/log/?q=needle", 0
    while not (lines := _lines(vera, address)):
        (older,) = re.findall(r'rel="prev" href="(\?[^"]+)"', vera.get(address).content.decode())
        address, steps = f"/queries/delays/log/{unescape(older)}", steps + 1
    assert lines == ["the needle"]
    assert steps == 2


def test_every_driver_of_the_query_can_be_chosen(vera: Client, delays: Stage) -> None:
    first = delays.driver("delays").epoch
    delays.restart("delays")
    delays.launcher.leave("delays")
    delays.wait(2)
    delays.ready("delays")
    second = delays.driver("delays").epoch
    delays.launcher.log("delays", second, "of the second\n")
    assert _lines(vera, "/queries/delays/log/") == ["of the second"]
    assert len(_lines(vera, f"/queries/delays/log/?driver={first}")) == 5
    page = Page(vera, f"/queries/delays/log/?driver={first}")
    assert "hx-get" not in page.html  # it has ended: nothing follows
    assert vera.get("/queries/delays/log/?driver=999").status_code == 404


@pytest.mark.sql(
    "queries.selectors.supervision.history.drivers_of_query",
)
def test_the_whole_log_is_sent_as_a_file_masked(vera: Client, delays: Stage) -> None:
    answer: Any = vera.get("/queries/delays/log/download/")
    text = b"".join(answer.streaming_content).decode()
    assert text.splitlines()[:4] == LOG.splitlines()[:4]
    assert "hunter2" not in text
    epoch = delays.driver("delays").epoch
    assert answer["Content-Disposition"] == f'attachment; filename="delays-driver-{epoch}.log"'


def test_a_line_without_end_ends_the_download_instead_of_filling_the_memory(
    vera: Client, delays: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MOST_OF_LINE", 1 << 20)
    delays.launcher.log("delays", delays.driver("delays").epoch, "x" * (3 << 20))
    answer: Any = vera.get("/queries/delays/log/download/")
    text = b"".join(answer.streaming_content).decode()
    assert text.splitlines()[-1] == "(The log continues with a line of more than 1 MiB.)"
    assert len(text) < 1 << 20


def test_a_run_leads_to_the_log_of_its_driver(vera: Client, delays: Stage) -> None:
    run = delays.run("delays")
    page = Page(vera, f"/runs/{run.pk}/").html
    assert f"/runs/{run.pk}/log/" in page
    (lines,) = re.findall(r'hx-get="([^"]*/log/lines/[^"]*)"', page)
    assert len(_lines(vera, unescape(lines))) == 5
    answer = vera.get(f"/runs/{run.pk}/log/")
    assert answer["Location"] == f"/queries/delays/log/?driver={run.driver.epoch}"


def test_a_query_without_a_driver_has_no_log(vera: Client, stage: Stage) -> None:
    stage.query("fresh")
    assert "No log" in Page(vera, "/queries/fresh/log/").text
    assert vera.get("/queries/fresh/log/download/").status_code == 404


def test_a_log_that_is_gone_says_so_where_it_would_stand(vera: Client, delays: Stage) -> None:
    epoch = delays.driver("delays").epoch
    delays.launcher.log("delays", epoch, "")
    delays.stop("delays")
    delays.launcher.leave("delays")
    delays.look()
    answer = vera.get(f"/queries/delays/log/lines/?driver={epoch}").content.decode()
    assert "The log is empty" in answer


def test_a_page_masks_64_kib_and_goes_on_before_them(
    vera: Client, delays: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[int] = []
    real = LocalSearcher.mask

    def noted(self: LocalSearcher, text: str) -> str:
        masked.append(len(text))
        return real(self, text)

    monkeypatch.setattr(LocalSearcher, "mask", noted)
    line = "26/11/23 16:13:29 WARN Utils: " + "-eyJ" * 500 + "\n"
    delays.launcher.log("delays", delays.driver("delays").epoch, line * 200)
    shown = 0
    address = "/queries/delays/log/?level=warn"
    while address:
        masked.clear()
        answer = vera.get(address).content.decode()
        assert 0 < sum(masked) <= IN_REQUEST
        shown += len(re.findall('class="log-line"', answer))
        older = re.findall(r'rel="prev" href="(\?[^"]+)"', answer)
        address = f"/queries/delays/log/{unescape(older[0])}" if older else ""
    assert shown == 200


def test_a_page_that_was_shown_is_not_masked_again_until_a_secret_becomes_known(
    vera: Client, delays: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _lines(vera, "/queries/delays/log/")
    monkeypatch.setattr(LocalSearcher, "mask", lambda self, text: "masked again")
    assert _lines(vera, "/queries/delays/log/") == first
    assert _lines(vera, "/queries/delays/log/?q=again") == []
    monkeypatch.setenv("OF_LOG_PAGES", "a new secret")
    with override_settings(SECRET_ENV_ALLOWLIST=["OF_LOG_PAGES"]):
        assert set(_lines(vera, "/queries/delays/log/")) == {"masked again"}


def test_a_download_masks_all_but_64_kib_in_another_process(
    vera: Client, delays: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[int] = []
    real = LocalSearcher.mask

    def noted(self: LocalSearcher, text: str) -> str:
        masked.append(len(text))
        return real(self, text)

    monkeypatch.setattr(LocalSearcher, "mask", noted)
    written = "".join(f"{number} password=hunter2hunter2\n" for number in range(10_000))
    delays.launcher.log("delays", delays.driver("delays").epoch, written)
    answer = vera.get("/queries/delays/log/download/")
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    assert text == written.replace("hunter2hunter2", MASK)
    assert sum(masked) <= IN_REQUEST
