"""What ends a query over a Delta or an Iceberg table is named, and each advice leads out of it.

The failures in recorded_tables.json were provoked with Delta 4.4.0 on Spark 4.2.1 and with Iceberg
1.11.0 on Spark 4.1.4, and captured as drivers do; stacks and plans are cut.
"""

import json
from pathlib import Path

import pytest

from queries.domain.failures.categories import Category, Remedy
from queries.domain.failures.diagnosis import Classified, classify
from queries.domain.states import Policy

RECORDED = json.loads((Path(__file__).parent / "recorded_tables.json").read_text())
EARLIEST = "Reset the query to earliest"

EXPECTED = {
    "delta: column added": (Category.EVOLVED, "restarted immediately"),
    "delta: column renamed, tracked": (Category.EVOLVED, "restarted immediately"),
    "delta: column renamed": (Category.CONFIGURATION, "unsafeReadOnIncompatibleColumnMapping"),
    "delta: column renamed, tracked, again": (Category.CONFIGURATION, EARLIEST),
    "delta: delete": (Category.CONFIGURATION, "ignoreDeletes"),
    "delta: update": (Category.CONFIGURATION, "skipChangeCommits"),
    "delta: log expired": (Category.SOURCE_LOST, EARLIEST),
    "delta: log hole": (Category.SOURCE_LOST, EARLIEST),
    "delta: log truncated": (Category.SOURCE_LOST, EARLIEST),
    "delta: files vacuumed": (Category.DATA, "Restore the file"),
    "delta: table replaced": (Category.SOURCE_LOST, EARLIEST),
    "delta: table gone": (Category.CONNECTION, "Let its writer create the table"),
    "delta: version not found": (Category.CONFIGURATION, "startingVersion"),
    "delta: timestamp too late": (Category.CONFIGURATION, "startingTimestamp"),
    "delta: no change data": (Category.CONFIGURATION, "readChangeFeed"),
    "delta: illegal option": (Category.CONFIGURATION, "Correct the option"),
    "delta: update mode": (Category.CONFIGURATION, "Use append or complete"),
    "delta: sink schema": (Category.CONFIGURATION, "mergeSchema"),
    "delta: sink partition": (Category.CONFIGURATION, "partition columns"),
    "iceberg: snapshot expired": (Category.SOURCE_LOST, EARLIEST),
    "iceberg: table replaced": (Category.SOURCE_LOST, EARLIEST),
    "iceberg: files removed": (Category.SOURCE_LOST, "Restore the file"),
    "iceberg: delete": (Category.CONFIGURATION, "streaming-skip-delete-snapshots"),
    "iceberg: overwrite": (Category.CONFIGURATION, "streaming-skip-overwrite-snapshots"),
    "iceberg: sink update": (Category.CONFIGURATION, "Use append or complete"),
    "iceberg: sink schema": (Category.CONFIGURATION, "the table's columns and types"),
    "iceberg: sink type": (Category.CONFIGURATION, "the table's columns and types"),
    "iceberg: sink column dropped": (Category.CONFIGURATION, "the table's columns and types"),
}


def recorded(name: str) -> Classified:
    return classify(**RECORDED[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_failure_is_named_and_held_or_tried_again(name: str) -> None:
    category, way_out = EXPECTED[name]
    found = recorded(name)
    assert found.category is category, found
    assert way_out in found.way_out
    assert found.policy is category.policy


def test_everything_recorded_is_judged() -> None:
    of_catalogs = {"iceberg: no table", "iceberg: table gone"}
    assert RECORDED.keys() - of_catalogs == EXPECTED.keys()


def test_an_iceberg_source_without_its_table_waits_for_it_and_a_name_in_sql_does_not() -> None:
    failure = RECORDED["iceberg: no table"]
    assert classify(**failure).category is Category.PLAN
    for part in ("source", "table"):
        named = f"{part} 'flights' (iceberg): {failure['message']}"
        found = classify(**{**failure, "message": named})
        assert (found.category, found.policy) == (Category.CONNECTION, Policy.RETRY)


@pytest.mark.parametrize("name", [name for name, one in EXPECTED.items() if EARLIEST in one[1]])
def test_what_a_reset_mends_offers_one(name: str) -> None:
    assert recorded(name).remedy is Remedy.TO_EARLIEST


@pytest.mark.parametrize(
    ("type_name", "text", "category"),
    [
        (
            "org.apache.spark.sql.delta.ConcurrentAppendException",
            "[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict detected.",
            Category.STORAGE,
        ),
        (
            "org.apache.iceberg.exceptions.CommitFailedException",
            "Version 7 already exists: /data/lake/air/delays/metadata/v7.metadata.json",
            Category.STORAGE,
        ),
        (
            "java.lang.IllegalStateException",
            "Incoming records violate the writer assumption that records are clustered by spec and "
            "by partition within each spec.",
            Category.CONFIGURATION,
        ),
        (
            "org.apache.spark.sql.delta.DeltaUnsupportedTableFeatureException",
            "[DELTA_UNSUPPORTED_FEATURES_FOR_READ] Unsupported Delta read feature: table requires "
            "reader table feature(s) that are unsupported by this version.",
            Category.CONFIGURATION,
        ),
        (
            "org.apache.spark.sql.delta.DeltaFileNotFoundException",
            "Could not find any delta files for version 8",
            Category.SOURCE_LOST,
        ),
    ],
)
def test_what_was_not_provoked_is_named_by_its_condition_or_message(
    type_name: str, text: str, category: Category
) -> None:
    found = classify(
        error_class="", type_name=type_name, root_cause=text, message=f"{type_name}: {text}"
    )
    assert found.category is category
