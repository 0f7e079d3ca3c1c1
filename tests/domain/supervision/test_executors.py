"""An executor lost and found again is told in a sentence, for as long as it is news."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from queries.domain.protocol import DriverStatus, ExecutorSeen, ExecutorsWanted
from queries.domain.supervision.observation import (
    DriverExecutors,
    executors,
    idle_since,
    missing_executors,
)

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


def told(number: int, *, added_s: float, removed_s: float | None = None) -> dict[str, Any]:
    """Return an executor that came and went so many seconds ago."""
    return asdict(
        ExecutorSeen(
            id=str(number),
            address=f"10.0.0.{number}:7000",
            cores=2,
            active=removed_s is None,
            added_at=(NOW - timedelta(seconds=added_s)).isoformat(),
            removed_at=None
            if removed_s is None
            else (NOW - timedelta(seconds=removed_s)).isoformat(),
            reason="" if removed_s is None else "worker lost.",
        )
    )


def test_a_driver_on_one_machine_has_none() -> None:
    assert executors([], now=NOW) == DriverExecutors()


def test_cores_are_those_at_work() -> None:
    seen = executors([told(0, added_s=900), told(1, added_s=900, removed_s=700)], now=NOW)
    assert (seen.cores, len(seen.active), len(seen.lost)) == (2, 1, 1)


def test_an_old_loss_is_no_news() -> None:
    assert executors([told(1, added_s=900, removed_s=601)], now=NOW).news == ""


def test_a_loss_says_which_when_why_and_what_is_left() -> None:
    seen = executors([told(0, added_s=900), told(1, added_s=900, removed_s=60)], now=NOW)
    assert seen.news == (
        "Executor 1 on 10.0.0.1:7000 was lost at 02:59:00 UTC (worker lost); not replaced yet. 1 "
        "with 2 cores is active."
    )


def test_what_a_pod_ended_of_is_a_sentence_of_its_own() -> None:
    lost = {**told(1, added_s=900, removed_s=60), "reason": "The pod was evicted: full."}
    seen = executors([told(0, added_s=900), lost], now=NOW)
    assert seen.news == (
        "Executor 1 on 10.0.0.1:7000 was lost at 02:59:00 UTC; not replaced yet. The pod was "
        "evicted: full. 1 with 2 cores is active."
    )


def test_one_found_again_is_said_too() -> None:
    seen = executors(
        [
            told(0, added_s=900),
            told(3, added_s=50),
            told(2, added_s=900, removed_s=55),
            told(1, added_s=900, removed_s=60),
        ],
        now=NOW,
    )
    assert seen.news == (
        "2 executors were lost at 02:59:00 UTC; 1 replaced. 2 with 4 cores are active."
    )


def test_a_status_carries_them_there_and_back() -> None:
    one = ExecutorSeen("1", "here:1", 2, True, NOW.isoformat())
    status = DriverStatus(epoch=1, applied_generation=1, at=NOW.isoformat(), executors=(one,))
    assert DriverStatus.loads(status.dumps()) == status


def wanted(*workers: tuple[int, int], cores: int = 1, memory_mb: int = 4096) -> ExecutorsWanted:
    return ExecutorsWanted(NOW.isoformat(), memory_mb, cores, workers)


def test_what_no_worker_can_give_is_said_with_what_would_fit() -> None:
    said = missing_executors(wanted((1, 1536), (2, 1024), cores=2))
    assert said == (
        "No executor has been active since 03:00:00 UTC, so no tasks run. The driver "
        "requests executors of 4096 MB and 2 cores. The cluster has 2 workers, the largest with "
        "1536 MB and 1 core. Set spark.executor.memory to at most 1536m and spark.executor.cores "
        "to at most 1, or add a larger worker; then restart the application."
    )


def test_what_would_fit_is_held_by_others() -> None:
    assert (
        "The request would fit, but other applications hold these resources"
        in missing_executors(wanted((4, 8192)))
    )


def test_a_cluster_without_workers_needs_one() -> None:
    assert missing_executors(wanted()).endswith("The cluster has no workers: start one.")


def test_a_manager_that_does_not_tell_is_named() -> None:
    said = missing_executors(ExecutorsWanted(NOW.isoformat(), 1024, 1))
    assert said.endswith("The cluster manager does not report its resources; check its web page.")


# --- Kubernetes ---------------------------------------------------------------------------


def on_kubernetes(waits: str) -> str:
    return missing_executors(
        ExecutorsWanted(NOW.isoformat(), 512, 1, overhead_mb=384, pod_reason=waits)
    )


def test_why_a_pod_waits_is_said_with_what_is_requested() -> None:
    assert on_kubernetes("No node can take the pod: 2 Insufficient memory.") == (
        "No executor has been active since 03:00:00 UTC, so no tasks run. The driver requests "
        "executors of 512 MB with 384 MB of overhead and 1 core. No node can take the pod: 2 "
        "Insufficient memory."
    )
    assert "Kubernetes gives no reason" in on_kubernetes("")


# --- YARN ---------------------------------------------------------------------------------


def on_yarn(
    free: tuple[int, int] | None,
    *,
    memory_mb: int = 3000,
    application_master: bool = False,
    overhead_mb: int = 384,
) -> str:
    return missing_executors(
        ExecutorsWanted(
            NOW.isoformat(),
            memory_mb,
            1,
            ((8, 4096),),
            overhead_mb=overhead_mb,
            free=None if free is None else (free,),
            application_master=application_master,
        )
    )


def test_what_yarn_holds_for_others_is_said_with_what_would_fit() -> None:
    assert on_yarn((7, 3328)) == (
        "No executor has been active since 03:00:00 UTC, so no tasks run. The driver "
        "requests executors of 3000 MB with 384 MB of overhead and 1 core. The cluster has 1 "
        "worker, with 4096 MB and 8 cores. At most 3328 MB and 7 cores are free on one worker; "
        "applications hold the rest, including this application's own master. Set "
        "spark.executor.memory to at most 2944m and spark.executor.cores to at most 7, end "
        "another application, or add a worker; then restart the application."
    )


def test_the_overhead_counts_where_no_node_is_large_enough() -> None:
    said = on_yarn((8, 4096), memory_mb=3800)
    assert "Set spark.executor.memory to at most 3712m" in said
    assert said.endswith("or add a larger worker; then restart the application.")


def test_nothing_is_advised_that_leaves_no_memory() -> None:
    assert on_yarn((0, 256)).endswith(
        "own master. End one of these, lower spark.yarn.am.memory, or add a worker."
    )


def test_what_is_free_is_enough() -> None:
    assert "The request would fit" in on_yarn((8, 4096))
    assert "The request would fit" in on_yarn(None)


def test_an_application_master_that_waits_is_named() -> None:
    said = on_yarn((7, 3000), application_master=True)
    assert said.startswith(
        "YARN has not started its application master since 03:00:00 UTC, so there is no Spark "
        "session. The driver requests 3000 MB with 384 MB of overhead and 1 core. The cluster has "
        "1 worker"
    )
    assert "are free on one worker; other applications hold the rest. Set" in said
    assert "Set spark.yarn.am.memory to at most 2616m and spark.yarn.am.cores to at most 7" in said


def test_since_when_a_driver_has_none_is_in_its_row() -> None:
    assert idle_since(asdict(wanted())) == NOW
    assert idle_since(None) is None
