"""Continuous and real-time queries are counted against the application's cores when saved."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.triggers.cores import (
    Ground,
    core_doubts,
    core_problems,
    cores_of,
    outgrown,
    permanent_cores,
)
from queries.domain.validation.application_rules import ValidationContext
from tests.domain.validation.test_query_rules import KAFKA, TO_KAFKA, found, python, said, sql

CONTINUOUS = {"kind": "continuous", "interval": "1 second"}
REAL_TIME = {"kind": "real_time", "interval": "5 seconds"}
SERVERS = {"kafka.bootstrap.servers": "h:9092"}


def kafka(trigger: dict[str, Any] = CONTINUOUS, **changes: Any) -> dict[str, Any]:
    return sql(sources=[KAFKA], sink=TO_KAFKA, trigger=trigger, **changes)


def assigned(*partitions: int, trigger: dict[str, Any] = CONTINUOUS) -> dict[str, Any]:
    options = {**SERVERS, "assign": json.dumps({"in": list(partitions)})}
    return sql(sources=[{**KAFKA, "options": options}], sink=TO_KAFKA, trigger=trigger)


def on(master: str, raw: dict[str, Any], **known: Any) -> dict[str, str]:
    application = {"master": master, "connectors": ["kafka"], "conf": known.pop("conf", {})}
    return said(found(raw, application=application, surroundings=ValidationContext(**known)))


@pytest.mark.parametrize(
    ("master", "conf", "host", "cores"),
    [
        ("local", {}, 8, 1),
        ("local[3]", {}, 8, 3),
        ("local[3, 2]", {}, 8, 3),
        ("local[*]", {}, 8, 8),
        ("local[*]", {}, None, None),
        ("spark://h:7077", {}, 8, None),
        ("spark://h:7077", {"spark.cores.max": "4"}, 8, 4),
        ("spark://h:7077", {"spark.cores.max": "many"}, 8, None),
        ("yarn", {}, 8, None),
    ],
)
def test_a_master_tells_its_cores_or_does_not(
    master: str, conf: dict[str, str], host: int | None, cores: int | None
) -> None:
    assert cores_of(ApplicationSpec(master=master, conf=conf), host_cores=host) == cores


@pytest.mark.parametrize("trigger", [CONTINUOUS, REAL_TIME])
def test_too_few_cores_for_the_partitions_are_refused_when_saved(trigger: dict[str, Any]) -> None:
    problem = on("local[2]", kafka(trigger), partitions={"ticks": 5})["trigger.kind"]
    assert "one core per source partition for as long as it runs: 5 for source ticks" in problem
    assert "The application has 2 cores (local[2])" in problem
    assert "Give the application local[5] or more" in problem


@pytest.mark.parametrize(
    ("master", "known"),
    [
        ("local[5]", {"partitions": {"ticks": 5}}),
        ("local[*]", {"partitions": {"ticks": 5}, "host_cores": 5}),
        ("local[2]", {}),
        ("local[2]", {"partitions": {"another": 5}}),
        ("spark://h:7077", {"partitions": {"ticks": 5}}),
    ],
)
def test_enough_or_unknown_is_no_refusal(master: str, known: dict[str, Any]) -> None:
    assert on(master, kafka(), **known) == {}


def test_partitions_that_are_assigned_are_known_without_a_look() -> None:
    assert "3 for source ticks" in on("local[2]", assigned(0, 1, 4))["trigger.kind"]
    assert on("local[3]", assigned(0, 1, 4)) == {}


@pytest.mark.parametrize("text", ["nonsense", "[1, 2]", '{"in": 3}'])
def test_an_assignment_that_cannot_be_read_is_counted_by_nobody_here(text: str) -> None:
    options = {**SERVERS, "assign": text}
    raw = sql(sources=[{**KAFKA, "options": options}], sink=TO_KAFKA, trigger=CONTINUOUS)
    assert permanent_cores(parse_query(raw), Ground(cores=1)) == 0


def test_the_rate_source_says_its_partitions() -> None:
    rate = {"name": "ticks", "format": "rate", "options": {"numPartitions": 4}}
    raw = sql(sources=[rate], trigger=CONTINUOUS)
    assert "4 for source ticks" in on("local[2]", raw)["trigger.kind"]


def test_other_queries_that_hold_cores_are_counted_too() -> None:
    known = {"partitions": {"ticks": 2}, "beside": {"realtime": 3, "idle": 0}}
    assert "of which realtime holds 3" in on("local[4]", kafka(), **known)["trigger.kind"]
    assert on("local[5]", kafka(), **known) == {}


COUNTS = "SELECT key, count(*) AS value FROM ticks GROUP BY key"


@pytest.mark.parametrize(
    ("conf", "application_conf", "needs"),
    [
        ({}, {}, "200 for the shuffle"),
        ({}, {"spark.sql.shuffle.partitions": "4"}, "4 for the shuffle"),
        ({"spark.sql.shuffle.partitions": 3}, {}, "3 for the shuffle"),
    ],
)
def test_a_shuffle_in_real_time_needs_its_own_cores(
    conf: dict[str, Any], application_conf: dict[str, str], needs: str
) -> None:
    raw = kafka(REAL_TIME, sql=COUNTS, conf=conf)
    problem = on("local[4]", raw, partitions={"ticks": 2}, conf=application_conf)["trigger.kind"]
    assert f"2 for source ticks and {needs}" in problem


def test_a_processing_time_query_needs_no_cores_of_its_own() -> None:
    every = {"kind": "processing_time", "interval": "1 second"}
    assert on("local[1]", kafka(every, sql=COUNTS), partitions={"ticks": 50}) == {}
    assert core_doubts(parse_query(kafka(every)), Ground()) == []


@pytest.mark.parametrize(
    ("raw", "ground", "says"),
    [
        (kafka(), Ground(cores=2), "the partitions of ticks are unknown; the application has 2"),
        (kafka(), Ground(), "the partitions of ticks are unknown."),
        (
            kafka(),
            Ground(partitions={"ticks": 5}),
            "5. The number of cores that the cluster provides is unknown",
        ),
        (
            python(trigger=CONTINUOUS),
            Ground(cores=9),
            "the number of partitions that its function reads",
        ),
    ],
)
def test_what_cannot_be_counted_is_said(raw: dict[str, Any], ground: Ground, says: str) -> None:
    assert says in core_doubts(parse_query(raw), ground)[0]


def test_what_is_known_leaves_no_doubt() -> None:
    ground = Ground(cores=5, partitions={"ticks": 5})
    assert core_doubts(parse_query(kafka()), ground) == []


def test_partitions_that_outgrow_the_cores_later_are_named() -> None:
    text = outgrown(kind="continuous", cores=4, partitions={"in": 5, "more": 1}, beside=2)
    assert "in has 5 and more has 1" in text
    assert "other queries of the application hold 2" in text
    assert "the application has 4 cores" in text
    assert "local[8]" in text


@given(st.integers(1, 50), st.integers(0, 50), st.sampled_from(["continuous", "real_time"]))
def test_a_query_is_refused_exactly_where_it_would_be_named_later(
    cores: int, partitions: int, kind: str
) -> None:
    spec = parse_query(kafka({"kind": kind, "interval": "5 seconds"}))
    problems = core_problems(spec, Ground(cores=cores, partitions={"ticks": partitions}))
    later = outgrown(kind=kind, cores=cores, partitions={"in": partitions})
    assert bool(problems) is bool(later) is (partitions > cores)


def test_nothing_is_named_where_nothing_is_held_or_known() -> None:
    assert outgrown(kind="processing_time", cores=1, partitions={"in": 5}) == ""
    assert outgrown(kind="continuous", cores=None, partitions={"in": 5}) == ""
    assert outgrown(kind="continuous", cores=1, partitions={"in": 2}).count("1 core.") == 1
