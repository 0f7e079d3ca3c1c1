"""A heartbeat's look at the queries: which have ended, and whether a task of each has finished."""

from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JNetworkError

from listeners.spark.heartbeat import QueryPulses
from listeners.spark.sorter import RunKnown


class Option:
    def __init__(self, value: str | None) -> None:
        self.value = value

    def isDefined(self) -> bool:
        return self.value is not None

    def get(self) -> str:
        assert self.value is not None
        return self.value


class Jobs:
    """Spark's running jobs: (group, id) -> finished tasks; and the queries that are active."""

    def __init__(self) -> None:
        self.running: dict[tuple[str | None, int], int] = {}
        self.active = {"a": True, "b": True}
        self.answers = True
        self.runs = [
            RunKnown(1, run, name, SimpleNamespace(isActive=lambda name=name: self.active[name]))
            for run, name in ((10, "a"), (20, "b"))
        ]
        store = SimpleNamespace(jobsList=self._list)
        java = SimpleNamespace(util=SimpleNamespace(List=SimpleNamespace(of=lambda one: [one])))
        apache = SimpleNamespace(
            spark=SimpleNamespace(JobExecutionStatus=SimpleNamespace(RUNNING="RUNNING"))
        )
        context: Any = SimpleNamespace(
            _jvm=SimpleNamespace(java=java, org=SimpleNamespace(apache=apache)),
            _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)),
        )
        self.pulses = QueryPulses(SimpleNamespace(sparkContext=context))

    def _list(self, statuses: list[str]) -> Any:
        assert statuses == ["RUNNING"]
        if not self.answers:
            raise Py4JNetworkError("gone")
        found = [
            SimpleNamespace(
                jobGroup=lambda group=group: Option(group),
                jobId=lambda number=number: number,
                numCompletedTasks=lambda done=done: done,
            )
            for (group, number), done in self.running.items()
        ]
        return SimpleNamespace(size=lambda: len(found), apply=lambda place: found[place])

    def told(self) -> dict[int, str | None]:
        """Return when a task of each run was last seen to finish."""
        return {pulse.run: pulse.task_at for pulse in self.pulses.look(self.runs)}


def test_a_finished_task_counts_for_its_own_query_alone() -> None:
    jobs = Jobs()
    jobs.running = {("a", 1): 0, (None, 2): 7}
    assert jobs.told() == {10: None, 20: None}
    jobs.running["a", 1] = 3
    first = jobs.told()
    assert first[10] is not None
    assert first[20] is None
    assert jobs.told() == first  # nothing more has finished
    jobs.running = {("b", 3): 1}  # a's job has ended with its last task, b's has begun
    second = jobs.told()
    assert second[10] is not None
    assert second[10] > first[10]
    assert second[20] is not None
    assert jobs.told() == second


def test_a_query_has_ended_once_two_looks_have_found_it_so() -> None:
    jobs = Jobs()
    jobs.active["a"] = False

    def alive() -> list[bool]:
        return [pulse.alive for pulse in jobs.pulses.look(jobs.runs)]

    assert [alive(), alive(), alive()] == [[True, True], [False, True], [False, True]]


def test_a_jvm_that_does_not_answer_says_nothing_of_its_queries() -> None:
    jobs = Jobs()
    jobs.answers = False
    assert jobs.pulses.look(jobs.runs) == ()
