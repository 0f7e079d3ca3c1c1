"""Checkpoint locations have one form, so that equal and nested ones are seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.locations import (
    NotALocation,
    canonical,
    checkpoint_problem,
    local_path,
    overlaps,
    path_problem,
)


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("/a/b", "file:///a/b"),
        ("/a//b/", "file:///a/b"),
        ("/a/./b", "file:///a/b"),
        (" /a ", "file:///a"),
        ("file:/a", "file:///a"),
        ("file:///a/", "file:///a"),
        ("FILE:///a", "file:///a"),
        ("file://localhost/a", "file:///a"),
        ("s3a://bucket/x//y/", "s3a://bucket/x/y"),
        ("hdfs://nn:8020/c", "hdfs://nn:8020/c"),
        ("/a b/ö", "file:///a b/ö"),
    ],
)
def test_a_location_has_one_form(text: str, location: str) -> None:
    assert canonical(text) == location
    assert canonical(location) == location


@pytest.mark.parametrize(
    "text",
    ["", "a", "./a", "~/a", "/", "//", "/a/../b", "/a/*", "/a/{b}", "/a\nb", "file:a",
     "file://elsewhere/a", "s3a:///a", "s3a://bucket", "s3a://bucket/", "dbfs:/a", "C:\\a"],
)  # fmt: skip
def test_what_is_no_location_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(NotALocation) as error:
        canonical(text)
    assert str(error.value).endswith(".")


def test_only_files_have_a_local_path() -> None:
    assert local_path("file:///a/b") == "/a/b"
    assert local_path("s3a://bucket/a") is None


names = st.lists(st.sampled_from(["a", "b", "ab", "a b"]), min_size=1, max_size=4)


@given(names, names)
def test_locations_overlap_where_one_is_a_beginning_of_the_other(
    one: list[str], other: list[str]
) -> None:
    shorter = min(len(one), len(other))
    expected = one[:shorter] == other[:shorter]
    first, second = canonical("/" + "/".join(one)), canonical("/" + "/".join(other))
    assert overlaps(first, second) is expected
    assert overlaps(second, first) is expected


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("file:///c/a", "is the checkpoint of query one."),
        ("file:///c/a/b", "is inside file:///c/a, the checkpoint of query one."),
        ("file:///c", "contains file:///c/a, the checkpoint of query one."),
        ("file:///c/ab", None),
        ("s3a://c/a", None),
    ],
)
def test_the_holder_of_a_location_is_named(location: str, says: str | None) -> None:
    problem = checkpoint_problem(location, {"file:///c/a": "one", "file:///d": "two"})
    assert (problem.message if problem else None) == says


@pytest.mark.parametrize("path", ["/in", "/in/*.json", "s3a://b/in", "file:///in", "hdfs:/in"])
def test_a_path_to_read_may_hold_wildcards(path: str) -> None:
    assert path_problem("f", path) is None
