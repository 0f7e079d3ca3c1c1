"""Which query reads what another one writes, and what lies up and down its stream."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.lineage.datasets import Uses
from queries.domain.lineage.graph import Edge, Graph, graph_of
from tests.domain.lineage.test_datasets import kafka, part, report, sql, used


def matches(pattern: str, topic: str) -> bool:
    return re.fullmatch(pattern, topic) is not None


def graph(**specs: dict[str, Any]) -> Graph:
    return graph_of({name: used(spec, {}, None) for name, spec in specs.items()}, matches)


def chain(*names: str, **more: dict[str, Any]) -> Graph:
    """Return queries of which each reads what the one before it writes."""
    specs = {
        name: sql(part("json", path=f"/data/{at}"), part("json", path=f"/data/{at + 1}"))
        for at, name in enumerate(names)
    }
    return graph(**specs, **more)


def test_downstream_and_upstream_are_followed_to_the_end_nearest_first() -> None:
    found = chain("a", "c", "b")
    assert found.downstream(["a"]) == ["c", "b"]
    assert found.upstream(["b"]) == ["c", "a"]
    assert found.downstream(["b"]) == found.upstream(["a"]) == []


def test_the_parts_of_a_graph_keep_only_their_queries() -> None:
    found = chain("a", "b", "c", apart=sql(kafka(assign="[")))
    assert found.near(["b"]) == found.connected(["b"]) == {"a", "b", "c"}
    assert found.near(["a"]) == {"a", "b"}
    part_of = found.of({"a", "b"})
    assert {edge.query for edge in part_of.edges} == {"a", "b"}
    assert part_of.downstream(["a"]) == ["b"]
    assert (dict(part_of.unknown), list(found.unknown)) == ({}, ["apart"])
    assert (part_of.unread, found.unread) == (frozenset(), frozenset({"apart"}))


def test_what_is_not_known_may_lengthen_a_list_of_queries() -> None:
    """Whose reads are unknown may be downstream; whose writes are unknown may have readers."""
    found = chain("a", "b", "c", unread=sql(kafka(assign="[")), unwritten=sql(sink=kafka()))
    assert found.unsure_downstream(["a"]) == ["unread"]
    assert found.unsure_upstream(["c"]) == ["unwritten"]
    assert found.unsure_downstream(["unwritten"]) == ["unread", "unwritten"]
    assert found.unsure_upstream(["unread"]) == ["unread", "unwritten"]
    assert found.unsure_near(["a"]) == []
    assert found.unsure_near(["a", "unread"]) == ["unread"]
    known = chain("a", "b")
    assert known.unsure_downstream(["a"]) == known.unsure_upstream(["b"]) == []


def test_a_query_that_reads_what_it_writes_is_not_downstream_of_itself() -> None:
    found = graph(a=sql(part("json", path="/d"), part("json", path="/d")))
    assert found.downstream(["a"]) == []


@pytest.mark.parametrize(
    ("brokers", "connected"),
    [
        ("b1:9092", True),
        ("b2:9092,b1:9092", True),
        ("B1:9092", True),
        ("PLAINTEXT://b1:9092", True),
        ("b2:9092", False),
        ("env:BROKERS", False),
    ],
)
def test_broker_lists_that_share_a_broker_name_one_cluster(brokers: str, connected: bool) -> None:
    options = {"kafka.bootstrap.servers": brokers, "subscribe": "t"}
    found = graph(a=sql(sink=kafka(topic="t")), b=sql({"format": "kafka", "options": options}))
    assert (found.downstream(["a"]) == ["b"]) is connected


def test_broker_lists_are_joined_through_others() -> None:
    def at(brokers: str, **options: str) -> dict[str, Any]:
        return {"format": "kafka", "options": {"kafka.bootstrap.servers": brokers, **options}}

    found = graph(
        a=sql(sink=at("b1:1", topic="t")),
        b=sql(at("b3:1", subscribe="t")),
        c=sql(at("b1:1,b2:1", subscribe="x")),
        d=sql(at("b2:1,b3:1,b1:1", subscribe="x")),
    )
    assert found.downstream(["a"]) == ["b"]


def test_a_pattern_reads_the_topics_that_it_matches_and_says_so() -> None:
    found = graph(
        a=sql(sink=kafka(topic="flights.eu")),
        b=sql(sink=kafka(topic="other")),
        c=sql(kafka(subscribePattern="flights[.].*")),
        d=sql(kafka(subscribePattern="nothing.*")),
    )
    assert found.upstream(["c"]) == ["a"]
    [edge] = [edge for edge in found.edges if edge.query == "c"]
    assert (edge.dataset.name, edge.via) == ("flights.eu", "flights[.].*")
    [edge] = [edge for edge in found.edges if edge.query == "d"]
    assert (edge.dataset.name, edge.via) == ("nothing.*", "")


@pytest.mark.parametrize(("clusters", "connected"), [(("b1:1",), True), (("b1:1", "b2:1"), False)])
def test_a_reported_topic_belongs_to_the_only_cluster_that_has_it(
    clusters: tuple[str, ...], connected: bool
) -> None:
    uses = {
        f"w{at}": used(
            sql(
                sink={
                    "format": "kafka",
                    "options": {"kafka.bootstrap.servers": one, "topic": "t"},
                }
            ),
            {},
            None,
        )
        for at, one in enumerate(clusters)
    }
    uses["code"] = used({"kind": "python"}, {}, report("KafkaV2[Subscribe[t]]"))
    assert (graph_of(uses, matches).upstream(["code"]) == ["w0"]) is connected


@pytest.mark.parametrize(
    ("path", "options", "connected"),
    [
        ("/data/out", {}, True),
        ("/data/out/", {}, True),
        ("/data/out/day=1", {}, True),
        ("/data/out/*.parquet", {}, True),
        ("/data/*", {}, True),
        ("/data/o[a-u]t", {}, True),
        ("/data/o[^a-u]t", {}, False),
        ("/data/{in,out}", {}, True),
        ("/data/{in,ou{t}", {}, False),
        ("/data/{" + ",".join("x" * 65) + ",out}", {}, False),
        ("/data/x*", {}, False),
        ("/data/other", {}, False),
        ("/data", {}, False),
        ("/data", {"recursiveFileLookup": "true"}, True),
        ("/data/out2", {}, False),
    ],
)
def test_files_are_read_by_folder_by_partition_and_by_wildcard(
    path: str, options: dict[str, str], connected: bool
) -> None:
    found = graph(
        a=sql(sink=part("parquet", path="/data/out")),
        b=sql(part("parquet", path=path, **options)),
        c=sql(part("parquet", path=path, **options)),
    )
    assert (found.downstream(["a"]) == ["b", "c"]) is connected


def test_partitions_that_are_written_below_a_path_are_read() -> None:
    found = graph(
        a=sql(sink=part("parquet", path="/data/out/day=1")),
        b=sql(part("parquet", path="/data/out")),
    )
    assert found.downstream(["a"]) == ["b"]


def test_tables_by_name_are_connected_by_equal_names_alone() -> None:
    found = graph(
        a=sql(sink=part("iceberg", table="db.t")),
        b=sql(part("iceberg", table="db.t")),
        c=sql(part("iceberg", table="db.t2")),
    )
    assert found.downstream(["a"]) == ["b"]


_FILES = st.integers(0, 6).map(lambda at: part("json", path=f"/d/{at}"))


@given(st.lists(st.tuples(_FILES, _FILES), max_size=8))
def test_closures_end_in_circles_and_are_the_reverse_of_each_other(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    found = graph(**{f"q{at}": sql(*pair) for at, pair in enumerate(pairs)})
    names = [f"q{at}" for at in range(len(pairs))]
    for name in names:
        below = found.downstream([name])
        assert len(below) == len(set(below))
        assert name not in below
        for other in below:
            assert name in found.upstream([other])
    assert list(found.edges) == sorted(set(found.edges))
    assert all(isinstance(edge, Edge) for edge in found.edges)


def test_nothing_has_an_empty_graph() -> None:
    assert graph_of({}, matches) == Graph()
    assert graph_of({"a": Uses()}, matches).connected(["a"]) == {"a"}


def test_a_wildcard_that_is_masked_leaves_the_others_their_lineage() -> None:
    hidden = sql(part("json", path="/data/token=*/in"), part("json", path="/data/token=1/out"))
    assert chain("a", "b", hidden=hidden).downstream(["a"]) == ["b"]


def test_a_long_pattern_matches_as_a_whole() -> None:
    pattern = "|".join(("x" * 200, "flights"))
    found = graph(a=sql(None, kafka(topic="flights")), b=sql(kafka(subscribePattern=pattern)))
    assert found.downstream(["a"]) == ["b"]
