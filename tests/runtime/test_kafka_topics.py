"""The driver's last look before a start: another topic than the one read is refused, or said."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import classify
from queries.runtime import kafka
from queries.runtime.failures.error_capture import StepFailed, from_python
from queries.runtime.kafka import KafkaSource, TopicIds, TopicWatch, check

STRICT = KafkaSource({"kafka.bootstrap.servers": "one:9092", "subscribe": "flights"})
LENIENT = KafkaSource({**STRICT.options, "failOnDataLoss": "false"})


class Brokers:
    """Sources as Spark has planned them, and what their brokers tell."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *sources: KafkaSource, **ids: str) -> None:
        self.asked: list[list[str]] = []
        self.ids = ids
        monkeypatch.setattr(kafka, "sources_of", lambda frame: list(sources))
        monkeypatch.setattr(kafka, "ids_of", self._told)

    def _told(self, jvm: Any, options: Mapping[str, str], asked: Sequence[str]) -> dict[str, str]:
        self.asked.append(list(asked))
        return {name: self.ids[name] for name in asked if name in self.ids}


def _check(remembered: dict[str, list[str]], *read: str) -> TopicIds:
    return check(None, remembered_ids=remembered, read=read, jvm=None)


def test_the_same_topic_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, STRICT, flights="old")
    assert _check({"flights": ["old"]}, "flights") == TopicIds({"flights": "old"})


@pytest.mark.guarantee("G-LOSS-1")
def test_another_topic_is_refused_as_lost_source_data(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, STRICT, flights="new")
    with pytest.raises(StepFailed, match="Topic flights was deleted and recreated") as refused:
        _check({"flights": ["old"]}, "flights")
    told = from_python(refused.value, str)
    found = classify(
        error_class=told.error_class,
        type_name=told.type_name,
        root_cause=told.root_cause,
        message=told.message,
    )
    assert found.category is Category.SOURCE_LOST
    assert "Reset the query to earliest" in found.way_out


def test_where_losses_are_gone_over_it_starts_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, LENIENT, flights="new")
    seen = _check({"flights": ["old"]}, "flights")
    assert seen.ids == {"flights": "new"}
    assert "Topic flights was deleted and recreated" in seen.warnings[0]


@pytest.mark.parametrize("remembered", [{}, {"flights": ["old"]}])
def test_no_answer_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, remembered: dict[str, list[str]]
) -> None:
    Brokers(monkeypatch, STRICT)
    assert _check(remembered, "flights") == TopicIds({})


def test_a_topic_of_which_nothing_was_read_may_be_any(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, STRICT, flights="new")
    assert _check({"flights": ["old"]}).warnings == ()


def test_of_a_pattern_the_topics_that_were_read_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pattern = KafkaSource({**STRICT.options, "subscribe": "", "subscribePattern": "f.*"})
    brokers = Brokers(monkeypatch, pattern, STRICT, flights="old")
    _check({"flights": ["old"]}, "flights", "freights")
    assert brokers.asked == [["flights", "freights"], ["flights"]]
    brokers.asked.clear()
    _check({})
    assert brokers.asked == [["flights"]]


def test_a_plan_that_cannot_be_read_refuses_nothing() -> None:
    assert check(
        object(), remembered_ids={"flights": ["old"]}, read=["flights"], jvm=None
    ) == TopicIds({})


class Watched:
    """A run's sources, looked at by the driver while the run goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *sources: KafkaSource, **ids: str) -> None:
        self.brokers = Brokers(monkeypatch, *sources, **ids)
        monkeypatch.setattr(kafka, "ids_of", self.brokers._told)
        self.read = ["flights"]
        self.told: list[dict[str, str]] = []
        self.warned: list[str] = []
        self.watch = TopicWatch(
            sources,
            dict(ids),
            read=lambda: self.read,
            jvm=None,
            report_ids=self.told.append,
            warn=self.warned.append,
        )


def test_a_topic_created_again_while_it_is_read_is_said_once_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Watched(monkeypatch, STRICT, flights="old")
    run.watch.look()
    assert (run.told, run.warned) == ([], [])
    del run.brokers.ids["flights"]  # it is away for a while
    run.watch.look()
    run.brokers.ids["flights"] = "new"
    for _ in range(3):
        run.watch.look()
    assert run.told == [{"flights": "new"}]
    [warning] = run.warned
    assert warning.startswith("Topic flights was deleted and recreated while it was read")


def test_where_losses_are_gone_over_it_is_said_and_puts_nothing_at_risk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Watched(monkeypatch, LENIENT, flights="old")
    run.brokers.ids["flights"] = "new"
    run.watch.look()
    assert (run.told, len(run.warned)) == ([], 1)


def test_topics_that_a_pattern_finds_later_are_watched_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pattern = KafkaSource({**STRICT.options, "subscribe": "", "subscribePattern": "f.*"})
    run = Watched(monkeypatch, pattern, flights="old")
    run.read, run.brokers.ids = ["flights", "freights"], {"flights": "old", "freights": "one"}
    run.watch.look()
    assert run.told == [{"flights": "old", "freights": "one"}]
    run.brokers.ids["freights"] = "two"
    run.watch.look()
    assert run.told[1:] == [{"flights": "old", "freights": "two"}]
    assert len(run.warned) == 1


def test_topics_of_one_name_on_two_brokers_are_not_taken_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = KafkaSource({**STRICT.options, "kafka.bootstrap.servers": "two:9092"})
    run = Watched(monkeypatch, STRICT, other, flights="here")
    ids = {"one:9092": "here", "two:9092": "there"}
    monkeypatch.setattr(
        kafka,
        "ids_of",
        lambda jvm, client, asked: dict.fromkeys(asked, ids[client["bootstrap.servers"]]),
    )
    for _ in range(2):
        run.watch.look()
    assert (run.told, run.warned) == ([], [])
    ids["two:9092"] = "another"
    run.watch.look()
    assert (run.told, len(run.warned)) == ([{"flights": "another"}], 1)


def test_a_run_that_has_ended_is_told_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Watched(monkeypatch, STRICT, flights="old")
    run.brokers.ids["flights"] = "new"
    run.watch.end()
    run.watch.look()
    assert (run.told, run.warned) == ([], [])
