"""Locations of checkpoints: many are asked about as one is."""

from queries.domain.definitions.locations import HeldLocations, checkpoint_problem


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
