"""Names by Prometheus' rules, and a HELP that says what a value is."""

import re
from pathlib import Path

import pytest

from queries.domain.metrics import METRICS, QUERY_METRICS, MetricKind

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def test_a_name_ends_with_what_it_counts(subtests: pytest.Subtests) -> None:
    for metric in METRICS:
        with subtests.test(metric.name):
            assert re.fullmatch(r"headgate_[a-z]+(_[a-z]+)*", metric.name)
            assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
            assert metric.help.endswith(".")
            for unit in ("seconds", "bytes"):
                if metric.name.removesuffix("_total").endswith(unit):
                    assert unit in metric.help.lower()


def test_each_name_stands_once() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(metric.labels[0] == "query" for metric in QUERY_METRICS)


def test_the_page_lists_all_of_them_with_kind_labels_and_help() -> None:
    rows = re.findall(
        r"^\| `(headgate_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE
    )
    expected = [
        (one.name, one.kind.value, ", ".join(f"`{label}`" for label in one.labels) or "–", one.help)
        for one in METRICS
    ]
    assert rows == expected
