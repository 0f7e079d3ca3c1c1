"""What another version of Spark does with a checkpoint: what it can continue, adds and loses."""

from typing import Any

import pytest

from queries.domain.sparks import (
    CHECKSUM,
    ENCODING,
    JOIN_FORMAT,
    KEY_ORDER,
    MERGE,
    PINS,
    PRUNED,
    SPARKS,
    NoWayBack,
    Spark,
    Written,
    as_json,
    cannot_go_back,
    doubts_about,
    pinned_by,
    pins_added,
    pins_lost,
    refuse_no_way_back,
)

ROCKS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}


def by(spark: Spark, *operators: str, fresh: bool = True, **more: Any) -> Written:
    """Return a checkpoint that a version wrote: created by it, or continued from older ones."""
    conf = {key: PINS[key].new if fresh else PINS[key].old for key in pinned_by(spark)}
    return Written(
        more.pop("offsets", "v1"),
        more.pop("commits", "v1"),
        conf | more.pop("conf", {}),
        operators,
    )


@pytest.mark.parametrize("spark", SPARKS)
def test_the_keys_in_the_log_say_which_version_wrote_it(spark: Spark) -> None:
    written = by(spark)
    either = spark in ("4.0", "4.1")  # they pin the same keys
    assert written.back == ("4.1" if either else spark)
    assert written.versions == ("4.0 or 4.1" if either else spark)


#: What the first releases of Spark 3.5 pinned, and 3.4.
BY_FIRST_3_5 = {key: PINS[key].old for key in pinned_by("3.5") - {PRUNED}}


@pytest.mark.parametrize(
    "conf", [BY_FIRST_3_5, {"spark.sql.shuffle.partitions": "200"}], ids=["3.5.0", "older"]
)
def test_a_log_that_older_versions_write_as_well_goes_back_to_3_5(conf: dict[str, str]) -> None:
    written = Written(conf=conf)
    assert (written.back, written.versions) == ("3.5", "3.5 or earlier")
    told = as_json(written, by("4.3", fresh=False), "4.3", None)
    assert (told["from"], told["back"], told["no_way_back"]) == ("3.5 or earlier", "3.5", "")


@pytest.mark.parametrize("conf", [{}, {"spark.sql.x": "1"}])
def test_a_log_without_any_pinned_key_is_of_no_version_that_can_be_chosen(
    conf: dict[str, str],
) -> None:
    written = Written(conf=conf)
    assert (written.back, written.versions) == (None, "of an unknown version")
    told = as_json(written, by("4.3", fresh=False), "4.3", None)
    assert (told["from"], told["back"], told["to"]) == ("of an unknown version", "", "4.3")
    assert told["no_way_back"] == (
        "The checkpoint was written by Spark of an unknown version, which Headgate does not run."
    )


@pytest.mark.parametrize("spark", SPARKS)
@pytest.mark.parametrize("operator", ["stateStoreSave", "symmetricHashJoin", "dedupe"])
def test_usual_state_goes_there_and_back(spark: Spark, operator: str) -> None:
    """As tried: aggregates, joins and deduplication, in both state stores."""
    assert cannot_go_back(by("4.3", operator), spark) == ""


@pytest.mark.parametrize(
    ("written", "works", "says"),
    [
        (by("4.2", offsets="v2"), "4.2", "its offset log has format v2"),
        (by("4.3", commits="v3"), "4.2", "its commit log has format v3"),
        (by("4.0", commits="v2"), "4.0", "its commit log has format v2"),
        (by("4.0", "stateStoreSave", conf={ENCODING: "avro"}), "4.0", "is encoded as avro"),
        (by("4.0", "transformWithStateExec"), "4.0", "the state of transformWithState"),
        (by("4.1", "symmetricHashJoin", conf={JOIN_FORMAT: "3"}), "4.1", "has format 3"),
        (by("4.2", "stateStoreSave", conf={CHECKSUM: "true"}), "4.2", "a checksum in each row"),
        (by("4.3", "symmetricHashJoin", conf={JOIN_FORMAT: "4"}), "4.3", "has format 4"),
        (
            by("4.3", "transformWithStateInPandasExec", conf=ROCKS),
            "4.2",
            f"lists in its state are stored in version 2 ({MERGE}).",
        ),
    ],
)
def test_what_an_older_spark_cannot_read_is_refused(
    written: Written, works: Spark, says: str
) -> None:
    for spark in SPARKS:
        found = cannot_go_back(written, spark)
        if SPARKS.index(spark) >= SPARKS.index(works):
            assert found == ""
        else:
            assert found.startswith(f"Spark {spark} cannot continue this checkpoint: ")
            assert says in found


def test_a_change_between_3_5_and_a_newer_version_says_what_ansi_mode_changes() -> None:
    (change,) = as_json(by("3.5"), by("4.3", fresh=False), "4.3", "3.5")["changes"]
    assert "fails the batch on Spark 4.3; Spark 3.5 continues with NULL" in change
    assert "set spark.sql.ansi.enabled to false" in change
    (change,) = as_json(by("4.0"), by("4.0"), "3.5", "4.0")["changes"]
    assert "Spark 3.5 continues with NULL" in change
    assert "set spark.sql.ansi.enabled to true" in change
    assert as_json(by("4.0"), by("4.0"), "4.3", "4.0")["changes"] == []
    assert as_json(Written(), Written(), "4.3", None)["changes"] == [], "it may be any version"


def test_the_refusal_names_the_query_and_the_way_out() -> None:
    written = by("4.3", "stateStoreSave", conf={CHECKSUM: "true"})
    refuse_no_way_back(written, "4.2", "delays")
    with pytest.raises(NoWayBack, match="delays: Spark 4") as raised:
        refuse_no_way_back(written, "4.1", "delays")
    assert "rewind the query to a snapshot" in raised.value.way_out


@pytest.mark.parametrize(
    "written",
    [
        by("4.0", conf={ENCODING: "avro"}),
        by("4.2", conf={CHECKSUM: "true"}),  # stateless: it has no rows of state
        by("4.3", "stateStoreSave", conf={JOIN_FORMAT: "4"}),
        by("4.3", "transformWithStateExec", fresh=False, conf=ROCKS),  # 4.1 has begun it
        by("4.3", "transformWithStateExec", conf={MERGE: "2"}),  # not in RocksDB
        by("4.3", commits="v2"),
    ],
)
def test_what_the_state_does_not_use_is_no_reason(written: Written) -> None:
    assert cannot_go_back(written, "4.1") == ""


def test_deduplication_by_many_columns_is_a_doubt_unless_an_older_spark_began_it() -> None:
    (doubt,) = doubts_about(by("4.3", "dedupe"), "4.2")
    assert "by more than 4 columns" in doubt
    assert doubts_about(by("4.3", "dedupe"), "4.3") == ()
    assert doubts_about(by("4.3", "stateStoreSave"), "4.2") == ()
    assert doubts_about(by("4.3", "dedupe", fresh=False), "4.2") == ()


def test_a_join_s_state_of_3_5_is_a_doubt_on_newer_versions() -> None:
    (doubt,) = doubts_about(by("3.5"), "4.3")
    assert "If the query joins streams, Spark 4.3 may reject the state" in doubt
    assert "spark.sql.streaming.stateStore.stateSchemaCheck to false" in doubt
    assert doubts_about(by("3.5"), "3.5") == doubts_about(by("4.0"), "4.3") == ()


def test_a_newer_spark_pins_more_keys_at_the_behaviour_of_the_older_one() -> None:
    added = {one.key: one.value for one in pins_added(by("4.1"), "4.3")}
    assert len(added) == 6
    assert (added[KEY_ORDER], added[MERGE]) == ("false", "1")
    assert pins_lost(by("4.1"), "4.3") == ()


def test_an_older_spark_loses_the_keys_that_it_does_not_know() -> None:
    lost = {one.key: one.value for one in pins_lost(by("4.3"), "4.2")}
    assert lost == {
        KEY_ORDER: "true",
        "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled": "true",
    }
    assert pins_added(by("4.3"), "4.2") == ()


def test_an_upgrade_says_whether_there_is_a_way_back() -> None:
    old = by("4.2", "stateStoreSave")
    told = as_json(old, by("4.3", "stateStoreSave", conf={CHECKSUM: "true"}), "4.3", "4.1")
    assert (told["from"], told["back"], told["to"], told["refused"]) == ("4.1", "4.1", "4.3", "")
    assert "checksum" in told["no_way_back"]
    assert [key for key, _ in told["added"]] == sorted(pinned_by("4.3") - pinned_by("4.2"))
    assert told["format"] == []
    assert len(told["back_lost"]) == 6
    moved = as_json(old, by("4.3", "stateStoreSave", offsets="v2"), "4.3", "4.2")
    assert moved["format"] == [["offset log", "v1", "v2"]]
    assert moved["no_way_back"] == ""
