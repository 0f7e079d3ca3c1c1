"""A misspelt option is named with the one that is meant: Spark would ignore it without a word."""

import pytest

from queries.domain.validation.spark_rules import (
    OPTIONS_BY_FORMAT,
    misspelt,
    option_problems,
    refused,
)


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
    assert "would ignore it" in problem.message
    assert problem.way_out == f"Did you mean {meant}?"


@pytest.mark.parametrize("name", sorted(OPTIONS_BY_FORMAT))
def test_every_known_option_passes_however_it_is_written(name: str) -> None:
    for option in OPTIONS_BY_FORMAT[name].values():
        assert misspelt("x", name, {option: "1", option.upper(): "1"}) == []


@pytest.mark.parametrize(
    ("name", "option"), [("json", "acme.plugin.level"), ("delta", "rowsPerSecnd"), ("noop", "path")]
)
def test_what_resembles_nothing_or_is_of_an_unknown_format_passes(name: str, option: str) -> None:
    assert misspelt("x", name, {option: "1"}) == []


@pytest.mark.parametrize(
    ("name", "option", "value", "why"),
    [
        ("json", "fs.file.impl", "org.acme.Own", "is not an option of json"),
        ("parquet", "parquet.acme.class", "org.acme.Own", "is not an option of parquet"),
        ("lake", "fs.defaultFS", "viewfs://x/", "a Hadoop or Spark setting"),
        ("csv", "codec", "org.acme.Own", "load org.acme.Own"),
    ],
)
def test_an_option_that_reaches_further_than_its_format_is_refused(
    name: str, option: str, value: str, why: str
) -> None:
    found = refused("sink.options", name, {option: value})
    assert [one.field for one in found] == [f"sink.options.{option}"]
    assert why in found[0].message
    assert found[0].way_out


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("kafka", "kafka.client.id", "fs.defaultFS"),
        ("json", "checkpointLocation", "/c"),
        ("json", "asyncProgressTrackingEnabled", "true"),
        ("json", "compression", "gzip"),
        ("parquet", "parquet.block.size", "1048576"),
        ("lake", "mergeMode", "fast"),
    ],
)
def test_an_option_of_its_own_is_not(name: str, option: str, value: str) -> None:
    assert refused("sink.options", name, {option: value}) == []


def test_an_option_is_told_of_once() -> None:
    found = option_problems("options", "json", {"multiLin": "true", "fs.defaultFS": "x"})
    assert [one.field for one in found] == ["options.multiLin", "options.fs.defaultFS"]


@pytest.mark.parametrize(
    ("option", "leads"), [("fs.file.impl", False), ("fs.s3a.connection.maximum", True)]
)
def test_nobody_is_led_to_configuration_that_is_refused_as_well(option: str, leads: bool) -> None:
    [found] = refused("sink.options", "json", {option: "org.acme.Own"})
    assert ("configuration" in found.way_out) is leads
