"""Pools become Spark's own file, and come with advice worth acting on."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.configuration import advice, cores_of, fairscheduler_xml
from queries.domain.definitions.spec import PoolSpec

HEAVY = [PoolSpec(name=name) for name in ("a", "b", "c")]
LIGHT = PoolSpec(name="z")


def test_pools_are_written_as_spark_reads_them() -> None:
    text = fairscheduler_xml(
        [PoolSpec(name="z", weight=3, min_share=1, mode="FIFO"), PoolSpec(name="a")]
    )
    pools = ET.fromstring(text).findall("pool")
    assert [pool.get("name") for pool in pools] == ["a", "z"]
    assert {child.tag: child.text for child in pools[1]} == {
        "schedulingMode": "FIFO",
        "weight": "3",
        "minShare": "1",
    }


@given(st.text(st.characters(min_codepoint=32, max_codepoint=1000), min_size=1, max_size=30))
def test_any_name_survives_the_file(name: str) -> None:
    (pool,) = ET.fromstring(fairscheduler_xml([PoolSpec(name=name)])).findall("pool")
    assert pool.get("name") == PoolSpec(name=name).name


def test_an_application_without_pools_has_an_empty_file() -> None:
    assert ET.fromstring(fairscheduler_xml([])).findall("pool") == []


def test_more_pools_than_cores_starve_the_last_one_by_name() -> None:
    queries = {"a": ["q1"], "b": ["q2"], "c": ["q3"], "z": ["light"]}
    (sentence,) = advice([*HEAVY, LIGHT], cores=2, queries=queries, scheduler_mode="FAIR")
    assert "4 pools share 2 cores" in sentence
    assert "z comes last and can starve" in sentence
    assert "minimum share of 1" in sentence


@pytest.mark.parametrize(
    ("pools", "cores", "busy"),
    [
        ([*HEAVY, LIGHT], 4, ["a", "b", "c", "z"]),
        ([*HEAVY, LIGHT], 2, ["a", "z"]),
        ([*HEAVY, LIGHT], None, ["a", "b", "c", "z"]),
        ([PoolSpec(name="a", min_share=1), PoolSpec(name="b", min_share=1)], 2, ["a", "b"]),
        ([], 2, []),
    ],
)
def test_where_nobody_starves_nothing_is_said(
    pools: list[PoolSpec], cores: int | None, busy: list[str]
) -> None:
    queries = {name: ["q"] for name in busy}
    assert advice(pools, cores=cores, queries=queries, scheduler_mode="FAIR") == []


def test_minimum_shares_beyond_the_cores_cannot_be_relied_on() -> None:
    pools = [PoolSpec(name="a", min_share=1), PoolSpec(name="b", min_share=1)]
    (sentence,) = advice(pools, cores=1, queries={"a": ["q"], "b": ["r"]}, scheduler_mode="FAIR")
    assert "add up to 2, more than the 1 core available" in sentence


def test_a_fifo_pool_of_several_queries_serves_the_first_first() -> None:
    pools = [PoolSpec(name="a", mode="FIFO")]
    (sentence,) = advice(pools, cores=2, queries={"a": ["q", "r"]}, scheduler_mode="FAIR")
    assert "has 2 queries" in sentence


def test_pools_do_nothing_under_fifo_scheduling() -> None:
    assert advice(HEAVY, cores=2, queries={}, scheduler_mode="FIFO") == [
        "The scheduler mode is FIFO, so pools have no effect."
    ]
    assert advice([], cores=2, queries={}, scheduler_mode="FIFO") == []


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[2]", 2), ("local[4, 2]", 4), ("local[*]", None), ("spark://h:1", None)],
)
def test_a_master_says_how_many_cores_there_are(master: str, cores: int | None) -> None:
    assert cores_of(master) == cores
