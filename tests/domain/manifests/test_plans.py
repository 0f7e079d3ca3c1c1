"""Differences field by field, and sets as they are sent."""

from typing import Any

import pytest

from headgate_ground.masking import MASK
from queries.domain.errors import Invalid
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.sets import Change, SetSource, differences, parse_set, settle


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [Change("a.b", 1, 2)]),
        ({"a": 1}, {}, [Change("a", 1, None)]),
        ({}, {"a": [1]}, [Change("a", None, [1])]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [Change("a.1", 2, 3)]),
        ({"a": [1]}, {"a": [1, 2]}, [Change("a.1", None, 2)]),
        ({"a": [1, 2]}, {"a": [1]}, [Change("a.1", 2, None)]),
        ("a", "b", [Change("", "a", "b")]),
        ({"password": "x"}, {"password": "y"}, [Change("password", MASK, MASK)]),
    ],
)
def test_each_field_that_differs_is_told(before: Any, after: Any, changes: list[Change]) -> None:
    assert list(differences(before, after)) == changes


def test_how_to_settle_names_the_file() -> None:
    assert "(delays.yaml)" in settle(Kind.QUERY, "delays", "delays.yaml")
    assert "export rule nights" in settle(Kind.ALERT_RULE, "nights", "")


def test_a_set_is_read_with_its_source() -> None:
    commit = "a" * 40
    repository = "https://ci:hunter22@example.org/q"
    asked = parse_set(
        {
            "owner": "data/repo",
            "source": {"repository": repository, "commit": commit},
            "manifests": [{"text": "a: 1"}, {"path": "b", "manifest": {}}],
        }
    )
    assert "hunter22" not in asked.source.repository
    assert asked.source.text().endswith(f" at {commit[:12]}")
    assert SetSource().text() == ""
    assert not asked.dry_run


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ([], "body"),
        ({"owner": "a"}, "manifests"),
        ({"owner": "a b", "manifests": []}, "owner"),
        ({"owner": "a", "manifests": [], "source": {"commit": "abc"}}, "source.commit"),
        ({"owner": "a", "manifests": [], "values": {"TOKEN": "abcdef"}}, "values.TOKEN"),
        ({"owner": "a", "manifests": [{}]}, "manifests.0"),
        ({"owner": "a", "manifests": [], "prune_running": True}, "prune_running"),
    ],
)
def test_a_set_with_faults_is_refused(raw: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_set(raw)
    assert field in [one.field for one in refused.value.problems]
