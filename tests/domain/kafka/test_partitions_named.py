"""Offsets that a new query starts at name each partition that it would read."""

import json

import pytest

from queries.domain.kafka.offsets import partitions_problem
from queries.domain.kafka.options import uncovered

READ = {("flights", 0), ("flights", 1)}


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (json.dumps({"flights": {"0": 5, "1": -2}}), False),
        (json.dumps({"flights": {"0": 5}}), True),
        (json.dumps({"flights": {"0": 5, "1": 5, "2": 5}}), True),
        ("earliest", False),  # names none
    ],
)
def test_offsets_and_partitions_agree(text: str, refused: bool) -> None:
    assert (partitions_problem("f", text, read=READ) is not None) is refused


def test_each_option_that_names_partitions_is_compared() -> None:
    given = {"startingoffsets": json.dumps({"flights": {"0": 5}})}
    [problem] = uncovered("sources.0.options", given, READ)
    assert problem.field.lower() == "sources.0.options.startingoffsets"
    assert uncovered("sources.0.options", {"startingOffsets": "latest"}, READ) == []
