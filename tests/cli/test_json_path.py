"""`-o jsonpath` and `--sort-by` read what kubectl's users write."""

from typing import Any

import pytest
from django.conf import settings

ONE = {"name": "delays", "labels": {"app.io/team": "data"}, "health": {"verdict": None}, "lag": 3}
LIST = [ONE, {"name": "arrivals", "labels": {}, "health": {"verdict": "GOOD"}, "lag": 20}]


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(f"{settings.BASE_DIR}/cli")
    from headgate_cli import json_path

    return json_path


@pytest.mark.parametrize(
    ("template", "document", "text"),
    [
        ("{.name}", ONE, "delays"),
        (".name", ONE, "delays"),
        ("{$.name} of {@.lag}", ONE, "delays of 3"),
        (r"{.labels.app\.io/team}", ONE, "data"),
        ("{.labels['app.io/team']}", ONE, "data"),
        ("{.labels}", ONE, '{"app.io/team": "data"}'),
        ("{.health.verdict}", ONE, ""),
        ("{.name.more}", ONE, ""),
        ("{.items[*].name}", LIST, "delays arrivals"),
        ("{[*].name}", LIST, "delays arrivals"),
        ("{.items[0].name} {.items[-1].name}", LIST, "delays arrivals"),
        ("{.items[0:1].name}", LIST, "delays"),
        ("{.items[7].name}", LIST, ""),
        ('{range .items[*]}{.name}{"\\t"}{.lag}{"\\n"}{end}', LIST, "delays\t3\narrivals\t20\n"),
        ("{range .items[*]}{range .labels.*}[{@}]{end}{end}", LIST, "[data]"),
        ('{.items[?(@.name=="delays")].lag}', LIST, "3"),
        ("{.items[?(@.name != 'delays')].lag}", LIST, "20"),
        ("{.items[?(@.lag>3)].name}", LIST, "arrivals"),
        ("{.items[?(@.name>3)].name}", LIST, ""),
        ("{.items[?(@.labels['app.io/team'])].name}", LIST, "delays"),
        ("{.items[*]['name']}", LIST, "delays arrivals"),
        ("{'{'}{.name}{\"}\"}", ONE, "{delays}"),
    ],
)
def test_a_template_prints_what_it_names(
    paths: Any, template: str, document: Any, text: str
) -> None:
    assert paths.read_template(template).of(document) == text


@pytest.mark.parametrize(
    "template",
    [
        *("{.name", ".name}", "{end}", "{range .items[*]}", "{..name}", "{.a b}", "{.items[x]}"),
        *("{.items[?(@.a=3)]}", "{.items[?(@.a==b)]}", '{"a}', "{.items[0}"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused(paths: Any, template: str) -> None:
    with pytest.raises(paths.PathError):
        paths.read_template(template)


def test_a_path_that_leads_nowhere_is_told(paths: Any) -> None:
    template = paths.read_template("{.metadata.name} {.name}")
    assert template.missing(ONE) == [".metadata.name"]


def test_numbers_come_before_texts_and_missing_values_last(paths: Any) -> None:
    rows = [{"n": value} for value in (None, "b", 10, {"x": 1}, 9, "a")] + [{}]
    key = paths.order(paths.read_path("{.n}"))
    found = [row.get("n") for row in sorted(rows, key=key)]
    assert found == [9, 10, "a", "b", {"x": 1}, None, None]
