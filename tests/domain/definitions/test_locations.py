"""Locations of checkpoints: many are asked about as one is."""

import pytest

from queries.domain.definitions.allowed_paths import lies_in
from queries.domain.definitions.locations import (
    HeldLocations,
    NotALocation,
    canonical,
    checkpoint_problem,
    in_full,
    overlaps,
)


def test_many_held_checkpoints_say_the_same_as_each_by_itself() -> None:
    held = {"file:///a/b": "one", "s3a://bucket/c/d": "two"}
    many = HeldLocations(held)
    for location in (
        *("file:///a/b", "file:///a", "file:///a/b/c/d", "file:///a/bc", "file:///x"),
        *("s3a://bucket/c", "s3a://other/c/d", "s3a://bucket/c/d/e"),
    ):
        assert many.problem(location) == checkpoint_problem(location, held), location
    many.take("file:///x/y", "three")
    found = many.problem("file:///x")
    assert found is not None
    assert "query three" in found.message
    assert "file:///x/y" in many
    assert "file:///x" not in many


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/c", "s3a://bucket/c"),
        ("abfs://c@account/d", "abfss://c@account/d"),
        ("hdfs://NN/d", "hdfs://nn:8020/d"),
    ],
)
def test_two_names_of_one_place_are_one_place(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        problem = HeldLocations({first: "delays"}).problem(second)
        assert problem is not None
        assert problem.message == "is the checkpoint of query delays."
        assert problem == checkpoint_problem(second, {first: "delays"})
        inside = HeldLocations({first: "delays"}).problem(f"{second}/deeper")
        assert inside is not None
        assert "is inside" in inside.message
        assert lies_in(first, (second.rpartition("/")[0],))
    assert not overlaps("s3://bucket/c", "s3a://other/c")
    assert not overlaps("hdfs://nn:9000/d", "hdfs://nn/d")


@pytest.mark.parametrize(
    ("text", "why"), [("s3n://bucket/x", "Write s3a://"), ("dbfs:/x", "only on Databricks")]
)
def test_a_scheme_that_spark_cannot_open_says_why(text: str, why: str) -> None:
    with pytest.raises(NotALocation) as found:
        canonical(text)
    assert why in f"{found.value} {found.value.way_out}"


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("hdfs:///etl/ck", "Write hdfs://NAMESERVICE/etl/ck, with the cluster's own name"),
        ("hdfs:/etl/ck", "Write hdfs://NAMESERVICE/etl/ck, with the cluster's own name"),
        ("s3a:///etl/ck", "Write s3a://BUCKET/etl/ck."),
    ],
)
def test_a_uri_without_a_host_is_refused_with_the_one_to_write(text: str, way_out: str) -> None:
    with pytest.raises(NotALocation) as found:
        canonical(text)
    assert "does not name a" in str(found.value)
    assert found.value.way_out.startswith(way_out)


@pytest.mark.parametrize(
    ("text", "default", "full"),
    [
        ("/etl/ck", "hdfs://nn:9000", "hdfs://nn:9000/etl/ck"),
        (" /etl/ck", "hdfs://nn:9000/", "hdfs://nn:9000/etl/ck"),
        ("/etl/*.json", "hdfs://ha", "hdfs://ha/etl/*.json"),
        ("hdfs:///etl", "hdfs://ha", "hdfs://ha/etl"),
        ("hdfs:/etl", "hdfs://ha", "hdfs://ha/etl"),
        ("HDFS:/etl", "hdfs://ha", "hdfs://ha/etl"),
        ("/etl", "s3a://bucket", "s3a://bucket/etl"),
        # these stay as they are
        ("/etl", "file:///", "/etl"),
        ("/etl", "", "/etl"),
        ("file:/etl", "hdfs://ha", "file:/etl"),
        ("hdfs://nn/etl", "hdfs://ha", "hdfs://nn/etl"),
        ("hdfs:///etl", "s3a://bucket", "hdfs:///etl"),
        ("etl", "hdfs://ha", "etl"),
        ("//nn/etl", "hdfs://ha", "//nn/etl"),
    ],
)
def test_a_path_is_completed_as_hadoop_completes_it(text: str, default: str, full: str) -> None:
    assert in_full(text, default) == full
