"""Why a batch was slow: one sentence, with the right cause and its numbers."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.triggers.slow_batches import (
    BatchCause,
    BatchEvidence,
    StageSeen,
    diagnose,
    evidence_of,
)

STAGE = StageSeen(
    stage=1,
    tasks=8,
    submitted=1_000,
    first_task=1_000,
    ended=39_000,
    run_ms=41_000,
    input_rows=1_000,
    longest_ms=38_000,
    longest_rows=920,
    median_ms=400,
)
EVEN = replace(
    STAGE,
    tasks=2,
    ended=11_000,
    run_ms=20_000,
    longest_ms=10_000,
    longest_rows=500,
    median_ms=9_900,
)


def seen(*stages: StageSeen, **changes: Any) -> BatchEvidence:
    """Return a batch that took 41 s, all of it in `addBatch`, unless changed."""
    usual: dict[str, Any] = {
        "batch": 1_204,
        "took_ms": 41_000,
        "started": 0,
        "phases": {"addBatch": changes.get("took_ms", 41_000)},
        "cores": 2,
        "stages": stages,
    }
    return BatchEvidence(**{**usual, **changes})


def test_a_skew_names_the_task_the_share_of_rows_and_the_partition() -> None:
    partitions = {"partition 3 of topic orders": 91, "partition 0 of topic orders": 9}
    assert diagnose(seen(STAGE, partitions=partitions)).says == (
        "Batch 1,204 took 41 s: one of 8 tasks took 38 s (median 400 ms); it read 92 % of the rows "
        "(partition 3 of topic orders)."
    )


@pytest.mark.parametrize(
    ("stage", "partitions", "end"),
    [
        (STAGE, {}, "92 % of the rows."),
        (STAGE, {"partition 3 of topic orders": 5, "other": 5}, "92 % of the rows."),
        (replace(STAGE, input_rows=0, shuffle_rows=1_000), {"a": 9}, "92 % of the rows."),
        (
            replace(STAGE, input_rows=0, longest_rows=0, bytes=800, longest_bytes=600),
            {"a": 9},
            "75 % of the bytes.",
        ),
    ],
)
def test_a_partition_is_named_only_if_it_explains_the_task(
    stage: StageSeen, partitions: dict[str, int], end: str
) -> None:
    assert diagnose(seen(stage, partitions=partitions)).says.endswith(end)


ON_ONE = replace(STAGE, longest_executor="3", longest_host="10.0.0.7")


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (
            replace(ON_ONE, longest_rows=130),
            "one of 8 tasks took 38 s (median 400 ms) on executor 3 at 10.0.0.7; it read 13 % of "
            "the rows, not more than the others, so its worker was slow or these rows take longer.",
        ),
        (
            replace(ON_ONE, longest_rows=0, longest_host="", bytes=800, longest_bytes=100),
            "on executor 3 at unknown host; it read 12 % of the bytes, not more than the others, "
            "so its worker was slow or these rows take longer.",
        ),
        (
            replace(STAGE, input_rows=0, longest_rows=0),
            "one of 8 tasks took 38 s (median 400 ms); how much it read is unknown.",
        ),
    ],
)
def test_a_slow_task_with_an_equal_share_is_not_a_skew(stage: StageSeen, says: str) -> None:
    found = diagnose(seen(stage))
    assert found.causes[0].cause is BatchCause.SLOW_TASK
    assert BatchCause.SKEW not in {one.cause for one in found.causes}
    assert found.says.endswith(says)


@pytest.mark.parametrize(
    ("evidence", "cause", "says"),
    [
        (
            seen(replace(EVEN, spilled_bytes=300 << 20), took_ms=10_000),
            BatchCause.SPILL,
            "its tasks spilled 300 MiB to disk for lack of memory, which took about 6.3 s",
        ),
        (
            seen(replace(EVEN, gc_ms=16_000), took_ms=10_000),
            BatchCause.GC,
            "garbage collection took 8.0 s, 80 % of its tasks' time",
        ),
        (
            seen(EVEN, took_ms=10_000, python_ms=18_000),
            BatchCause.PYTHON,
            "Python functions took 9.0 s, 90 % of its tasks' time",
        ),
        (
            seen(
                phases={"latestOffset": 30_000, "getBatch": 2_000, "addBatch": 9_000}, stages=None
            ),
            BatchCause.SOURCE,
            "the source took 32 s to answer (latestOffset)",
        ),
        (
            seen(EVEN),
            BatchCause.SINK,
            "the sink's commit took 30 s outside Spark's tasks",
        ),
        (
            seen(foreach_batch=True),
            BatchCause.SINK,
            "the foreachBatch function took 41 s outside Spark's tasks",
        ),
        (
            seen(replace(EVEN, first_task=9_000, run_ms=4_000, longest_ms=2_000), took_ms=10_000),
            BatchCause.CORES,
            "its tasks waited 8.0 s for one of 2 cores",
        ),
        (
            seen(phases={"walCommit": 20_000, "commitOffsets": 19_000}),
            BatchCause.CHECKPOINT,
            "writing the checkpoint took 39 s (walCommit)",
        ),
        (
            seen(replace(EVEN, shuffle_rows=1), took_ms=10_000, state_commit_ms=18_000),
            BatchCause.CHECKPOINT,
            "writing the checkpoint took 9.0 s (state commit)",
        ),
        (
            seen(
                replace(
                    EVEN, tasks=200, input_rows=0, shuffle_rows=900, longest_ms=60, median_ms=50
                ),
                took_ms=10_000,
            ),
            BatchCause.SHUFFLE,
            "its shuffle took 10 s (200 tasks for 900 rows)",
        ),
        (
            seen(replace(EVEN, fetch_ms=12_000, write_ms=4_000, shuffle_rows=1), took_ms=10_000),
            BatchCause.SHUFFLE,
            "its shuffle took 8.0 s (2 tasks for 1 row)",
        ),
        (
            seen(phases={"queryPlanning": 35_000, "addBatch": 1_000}),
            BatchCause.DRIVER,
            "the driver took 41 s outside Spark's tasks, 35 s of it planning the query",
        ),
        (
            seen(started=None),
            BatchCause.DRIVER,
            "the driver took 41 s outside Spark's tasks",
        ),
        (
            seen(EVEN, took_ms=10_000, cores=1),
            BatchCause.WORK,
            "its 2 tasks ran 20 s in total on 1 core",
        ),
    ],
)
def test_each_cause_has_its_sentence(evidence: BatchEvidence, cause: BatchCause, says: str) -> None:
    found = diagnose(evidence)
    assert found.causes[0].cause is cause
    assert f": {says}" in found.says


def test_a_second_large_cause_is_named_too() -> None:
    found = diagnose(seen(EVEN, took_ms=20_000, phases={"addBatch": 10_000, "walCommit": 9_000}))
    assert "its 2 tasks ran 20 s in total" in found.says
    assert "; writing the checkpoint took 9.0 s" in found.says


def test_the_usual_duration_is_said() -> None:
    assert "Batch 1,204 took 41 s (median 2.0 s): " in diagnose(seen(STAGE, median_ms=2_000)).says


def test_missing_stages_are_said() -> None:
    assert diagnose(seen(stages=None)).says == (
        "Batch 1,204 took 41 s: 41 s of it went into Spark's tasks and the sink; there is no "
        "stage data for this batch."
    )


def test_a_batch_without_times_is_said() -> None:
    assert diagnose(BatchEvidence(batch=0, took_ms=0)).says == (
        "Batch 0 took 0 ms; Spark reported no times for it."
    )


def test_scattered_causes_name_the_largest() -> None:
    phases = dict.fromkeys(("latestOffset", "walCommit"), 200)
    stages = [
        replace(EVEN, stage=n, submitted=n * 100, first_task=n * 100, ended=n * 100 + 100)
        for n in range(2)
    ]
    mixed = [replace(one, gc_ms=4_000, fetch_ms=4_000, run_ms=20_000) for one in stages]
    found = diagnose(seen(*mixed, took_ms=1_000, phases={**phases, "addBatch": 400}))
    assert found.says.count(";") == 0


def test_stages_side_by_side_count_once() -> None:
    found = diagnose(seen(EVEN, replace(EVEN, stage=2), took_ms=10_000))
    assert sum(one.ms for one in found.causes) == 10_000


def test_causes_have_labels() -> None:
    assert (BatchCause.GC.label, BatchCause.SKEW.label) == ("garbage collection", "skew")


def test_evidence_is_read_from_spark_and_the_driver() -> None:
    progress = {
        "batchId": 7,
        "timestamp": "2026-11-27T10:00:00.000Z",
        "batchDuration": 5_000,
        "durationMs": {"addBatch": 4_000, "walCommit": "odd"},
        "sources": [
            {
                "startOffset": {"orders": {"0": 5, "1": 7}},
                "endOffset": {"orders": {"0": 15, "1": 7, "2": 3}},
            },
            None,
        ],
        "sink": {"description": "ForeachBatchSink"},
        "stateOperators": [{"commitTimeMs": 30}, {}],
    }
    driver = {
        "stages": [{"tasks": 3, "gc_ms": -1, "longest_host": "h" * 300, "longest_executor": 4}, 5],
        "cores": 4,
        "python_ms": 9,
        "median_ms": 800,
    }
    found = evidence_of(progress, driver)
    assert found == BatchEvidence(
        batch=7,
        took_ms=5_000,
        started=1_795_773_600_000,
        phases={"addBatch": 4_000},
        partitions={
            "partition 0 of topic orders": 10,
            "partition 1 of topic orders": 0,
            "partition 2 of topic orders": 0,
        },
        foreach_batch=True,
        state_commit_ms=30,
        stages=(StageSeen(tasks=3, longest_host="h" * 255), StageSeen()),
        cores=4,
        python_ms=9,
        median_ms=800,
    )


def test_odd_evidence_is_unknown() -> None:
    odd = {"durationMs": 3, "sink": 4, "sources": 5, "timestamp": "never"}
    assert evidence_of(odd, None) == BatchEvidence(batch=0, took_ms=0)


_ms = st.integers(0, 100_000)
_stages = st.builds(
    StageSeen,
    tasks=st.integers(0, 300),
    **dict.fromkeys(
        ("submitted", "first_task", "ended", "run_ms", "gc_ms", "spilled_bytes", "fetch_ms"), _ms
    ),
    **dict.fromkeys(("write_ms", "shuffle_rows", "input_rows", "longest_ms", "median_ms"), _ms),
    **dict.fromkeys(("longest_rows", "bytes", "longest_bytes"), _ms),
)


@given(
    st.none() | st.lists(_stages, max_size=4),
    st.dictionaries(st.sampled_from(["addBatch", "walCommit", "getBatch"]), _ms),
    st.integers(0, 8),
)
def test_any_evidence_gives_a_sentence(
    stages: list[StageSeen] | None, phases: dict[str, int], cores: int
) -> None:
    listed = None if stages is None else tuple(stages)
    found = diagnose(seen(phases=phases, stages=listed, cores=cores))
    assert found.says.startswith("Batch 1,204 took 41 s")
    assert all(one.ms > 0 and one.text for one in found.causes)
