"""The versions of Spark that an application can choose, and what the older ones lack."""

from pathlib import Path

import pyspark
import pytest

from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.sparks import (
    CONDITIONS_SINCE,
    OURS,
    PINS,
    SPARKS,
    TRIGGERS_SINCE,
    Feature,
    Spark,
    command,
    conditions_between,
    has_feature,
    has_trigger,
    installable,
    is_older,
    key_since,
    pinned_by,
    spark_named,
    spark_of,
    unsupported,
)

CONNECTORS = Path(__file__).resolve().parents[3] / "connectors"


def test_an_application_runs_on_the_spark_of_headgate_unless_it_names_another() -> None:
    assert ApplicationSpec().spark == OURS
    assert pyspark.__version__.startswith(f"{OURS}.")


def test_every_other_version_has_pinned_packages_and_a_command() -> None:
    others = {path.stem: path.read_text() for path in (CONNECTORS / "sparks").glob("*.txt")}
    assert set(others) == set(SPARKS) - {OURS}
    for version, pins in others.items():
        assert f"pyspark=={version}." in pins
        assert "--hash=sha256:" in pins
        assert command(version).endswith(version)


@pytest.mark.parametrize("kind", ["processing_time", "available_now", "continuous"])
def test_old_triggers_are_in_every_version(kind: str) -> None:
    assert all(has_trigger(spark, kind) for spark in SPARKS)


def test_a_new_trigger_is_in_its_first_version_and_in_later_ones() -> None:
    having = [spark for spark in SPARKS if has_trigger(spark, "real_time")]
    assert having == ["4.2", "4.3"]
    assert TRIGGERS_SINCE["real_time"] == "4.2"


@pytest.mark.parametrize("feature", [Feature.STATE_IN_REAL_TIME, Feature.ASYNC_IN_REAL_TIME])
def test_what_real_time_mode_does_not_do_before_4_3(feature: Feature) -> None:
    assert [has_feature(spark, feature) for spark in SPARKS] == [False, False, False, False, True]


def test_versions_are_ordered() -> None:
    assert is_older("4.1", "4.2")
    assert not is_older("4.2", "4.2")
    assert not is_older("4.3", "4.2")


@pytest.mark.parametrize(
    ("spec", "spark"), [({"spark": "4.2"}, "4.2"), ({}, OURS), ({"spark": "9.9"}, OURS)]
)
def test_a_definition_without_a_known_version_means_ours(spec: dict[str, str], spark: str) -> None:
    assert spark_of(spec) == spark


def test_each_version_pins_what_the_one_before_it_pins_and_more() -> None:
    assert [len(pinned_by(spark)) for spark in SPARKS] == [10, 11, 11, 15, 17]
    assert pinned_by("3.5") < pinned_by("4.0") == pinned_by("4.1")
    assert pinned_by("4.1") < pinned_by("4.2") < pinned_by("4.3") == set(PINS)


@pytest.mark.parametrize(
    ("key", "since"),
    [
        ("spark.sql.streaming.stateStore.rowChecksum.enabled", "4.2"),
        ("spark.sql.streaming.queryEvolution.enableSinkEvolution", "4.2"),
        ("spark.sql.dropDuplicates.deterministicKeyOrder.enabled", "4.3"),
        ("spark.sql.streaming.stateStore.encodingFormat", "4.0"),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "4.0"),
        ("spark.sql.streaming.checkpoint.fileChecksum.enabled", "4.1"),
        ("spark.sql.shuffle.partitions", "3.5"),
        ("spark.sql.ansi.enabled", "3.5"),
    ],
)
def test_a_key_is_known_since_a_version(key: str, since: str) -> None:
    assert key_since(key) == since


@pytest.mark.parametrize(
    ("spark", "python", "java", "says"),
    [
        ("3.5", (3, 11), 17, ""),
        ("3.5", (3, 11), None, ""),
        ("3.5", (3, 12), 17, "supports Python up to 3.11, but drivers on this host use 3.12."),
        ("3.5", (3, 11), 21, "runs on Java 17, but drivers on this host use Java 21."),
        ("3.5", (3, 11), 11, "use Java 11."),
        ("4.0", (3, 14), 25, ""),
    ],
)
def test_a_python_or_java_that_3_5_does_not_support_is_explained(
    spark: Spark, python: tuple[int, int], java: int | None, says: str
) -> None:
    found = unsupported(spark, python, java)
    assert says in found
    assert bool(says) == bool(found)


def test_what_is_installed_is_a_version_or_a_connector_for_it() -> None:
    assert installable("4.2") == "Spark 4.2"
    assert installable("4.2", "delta") == "connector delta for Spark 4.2"


def test_a_version_is_found_by_its_name() -> None:
    assert [spark_named(text) for text in ("4.2", "4.2.1", "")] == ["4.2", None, None]


def test_conditions_that_only_the_newer_of_two_versions_has_are_named_both_ways() -> None:
    assert "PYTHON_EXCEPTION" in conditions_between("4.1", "4.2")
    assert "STREAMING_ASYNC_OPERATION_FAILED" not in conditions_between("4.1", "4.2")
    assert conditions_between("4.3", "4.2") == conditions_between("4.2", "4.3")
    assert "REMAINDER_BY_ZERO" in conditions_between("4.0", "4.1")
    assert "FAILED_READ_FILE" in conditions_between("3.5", "4.0")
    assert set(conditions_between("3.5", "4.3")) == set(CONDITIONS_SINCE)
    assert conditions_between("4.2", "4.2") == ()
