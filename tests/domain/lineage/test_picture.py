"""The picture of a lineage: columns from left to right, nothing on top of anything else."""

import itertools

from queries.domain.lineage.datasets import Uses
from queries.domain.lineage.graph import Graph, graph_of
from queries.domain.lineage.picture import GAP_X, HEIGHT, LABEL, MOST_NODES, WIDTH, picture_of
from tests.domain.lineage.test_datasets import kafka, part, sql
from tests.domain.lineage.test_graph import chain, graph, matches


def columns(found: Graph) -> dict[str, int]:
    return {node.name: node.x // (WIDTH + GAP_X) for node in picture_of(found).nodes}


def test_data_flows_to_the_right() -> None:
    at = columns(chain("a", "b"))
    assert at == {"/data/0": 0, "a": 1, "/data/1": 2, "b": 3, "/data/2": 4}


def test_what_nothing_writes_is_drawn_next_to_its_reader() -> None:
    late = sql(part("json", path="/data/2"), tables=[part("json", path="/static")])
    assert columns(chain("a", "b", late=late))["/static"] == 4


def test_a_circle_is_drawn_with_one_line_back() -> None:
    found = graph(
        a=sql(part("json", path="/d/1"), part("json", path="/d/2")),
        b=sql(part("json", path="/d/2"), part("json", path="/d/1")),
    )
    picture = picture_of(found)
    assert sorted({node.x for node in picture.nodes}) == [
        12 + at * (WIDTH + GAP_X) for at in range(4)
    ]
    assert len(picture.lines) == 4


def test_nodes_do_not_overlap_and_are_within_the_picture() -> None:
    specs = {
        f"q{at}": sql(part("json", path=f"/d/{at % 7}"), part("json", path=f"/d/{at % 11 + 5}"))
        for at in range(60)
    }
    picture = picture_of(graph(**specs), {"q3"})
    taken = {(node.x, node.y) for node in picture.nodes}
    assert len(taken) == len(picture.nodes) == picture.count
    for x in {x for x, _ in taken}:
        rows = sorted(y for other, y in taken if other == x)
        assert all(below - above > HEIGHT for above, below in itertools.pairwise(rows))
    assert all(0 < x <= picture.width - WIDTH for x, _ in taken)
    assert all(0 < y <= picture.height - HEIGHT for _, y in taken)
    assert [node.name for node in picture.nodes if node.is_focus] == ["q3"]


def test_too_many_nodes_are_counted_and_not_drawn() -> None:
    found = graph(**{f"q{at}": sql(part("json", path=f"/d/{at}")) for at in range(MOST_NODES)})
    picture = picture_of(found)
    assert (picture.nodes, picture.count) == ((), 2 * MOST_NODES)


def test_nothing_is_an_empty_picture() -> None:
    assert picture_of(graph_of({"a": Uses()}, matches)).count == 0


def test_a_long_name_is_shortened_in_the_middle() -> None:
    [dataset, _] = picture_of(graph(a=sql(part("json", path="/d/" + "x" * 50 + "/end")))).nodes
    assert len(dataset.label) == LABEL
    assert dataset.label.startswith("/d/")
    assert dataset.label.endswith("/end")
    assert [node.label for node in picture_of(graph(a=sql(kafka(subscribe="t")))).nodes] == [
        "a",
        "t",
    ]


def test_a_line_is_marked_if_only_spark_reported_it() -> None:
    [line] = picture_of(graph(a=sql(kafka(subscribe="t")))).lines
    assert not line.is_reported
