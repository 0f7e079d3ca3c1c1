"""A misspelt option is named with the one that is meant: Spark would ignore it without a word."""

import pytest

from queries.domain.validation.known_options import KNOWN, misspelt


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("rate", "rowsPerSecnd", "rowsPerSecond"),
        ("rate-micro-batch", "rowPerBatch", "rowsPerBatch"),
        ("json", "maxFilePerTrigger", "maxFilesPerTrigger"),
        ("csv", "haeder", "header"),
        ("parquet", "mergeShema", "mergeSchema"),
        ("socket", "includeTimestmp", "includeTimestamp"),
        ("console", "truncated", "truncate"),
    ],
)
def test_a_misspelling_is_named_with_what_is_meant(name: str, written: str, meant: str) -> None:
    (problem,) = misspelt("sources.0.options", name, {written: "7"})
    assert problem.field == f"sources.0.options.{written}"
    assert "would be ignored" in problem.message
    assert problem.way_out == f"Did you mean {meant}?"


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_known_option_passes_however_it_is_written(name: str) -> None:
    for option in KNOWN[name].values():
        assert misspelt("x", name, {option: "1", option.upper(): "1"}) == []


@pytest.mark.parametrize(
    ("name", "option"), [("json", "acme.plugin.level"), ("delta", "rowsPerSecnd"), ("noop", "path")]
)
def test_what_resembles_nothing_or_is_of_an_unknown_format_passes(name: str, option: str) -> None:
    assert misspelt("x", name, {option: "1"}) == []
