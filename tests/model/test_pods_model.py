"""What may befall a driver that is a pod, each as one history of the model of supervision."""

from collections.abc import Iterator

import pytest

from queries.domain.states import OPEN_DRIVER_STATES, Reason, RunOutcome
from queries.models.drivers import Driver, Run
from tests.model.machine import IN_POD, Opening, Supervision
from tests.model.pods import Key
from tests.model.world import Thread

pytestmark = pytest.mark.django_db


class History(Supervision):
    """A history whose steps a test names; every invariant is judged after each of them."""

    def pod(self, news: str) -> None:
        """Something happens to the only pod that there is, or to its node; a worker looks."""
        self.a_pod_or_its_node_changes(0, news, True)
        self.judge()

    def around(self, news: str) -> None:
        """The surroundings change."""
        self.the_surroundings_change(news)
        self.look()

    def look(self, *, after_s: int = 0) -> None:
        """A worker looks, after a while."""
        self.time_passes(after_s)
        self.a_worker_looks(IN_POD)
        self.judge()

    def go_on(self) -> None:
        """A second passes in which all goes well."""
        self.all_goes_well(False)
        self.judge()

    def judge(self) -> None:
        """Judge the invariants."""
        for name in dir(Supervision):
            if hasattr(method := getattr(self, name), "hypothesis_stateful_invariant"):
                method()

    def open_epochs(self) -> list[int]:
        """Return the epochs of the drivers that supervision has not seen end."""
        rows = Driver.objects.filter(application__name=IN_POD, state__in=OPEN_DRIVER_STATES)
        return sorted(rows.values_list("epoch", flat=True))

    def writing(self) -> list[Thread]:
        """Return what can write to the checkpoint now."""
        return [one for one in self.world.living_threads() if one.application == IN_POD]

    def newest(self) -> Thread:
        """Return the newest run."""
        return max(
            (one for one in self.world.threads.values() if one.application == IN_POD),
            key=lambda one: one.epoch,
        )


@pytest.fixture
def history() -> Iterator[History]:
    """Yield a history whose pod writes; its faults are over after the test, and it settles."""

    class Begun(History):
        opening = Opening()

    begun = Begun()
    yield begun
    begun.teardown()


def _the_pod(history: History) -> Key:
    (key,) = history.world.pods_alive()
    return key


def test_a_successor_of_a_pod_whose_node_is_lost_waits_until_that_has_halted(
    history: History,
) -> None:
    former = _the_pod(history)
    history.pod("its node is lost and it is removed")
    (successor,) = history.open_epochs()
    assert successor > former[1]
    history.go_on()
    waiting = history.newest()
    assert (waiting.driver, waiting.building) == (successor, True)
    assert [one.driver for one in history.writing()] == [former[1]]
    history.look(after_s=31)
    assert history.world.pods_alive() == [(IN_POD, successor)]
    history.go_on()
    assert history.writing() == [waiting]


def test_a_successor_of_a_pod_whose_end_was_seen_begins_at_once(history: History) -> None:
    former = _the_pod(history)
    history.world.die(former[0], epoch=former[1])
    history.look()
    assert history.world.pods.has_exit(former)
    history.go_on()
    assert [one.driver for one in history.writing()] == history.open_epochs() != [former[1]]


@pytest.mark.parametrize("point", ["intent", "spawning"])
def test_a_worker_that_dies_while_it_creates_a_pod_leaves_one_pod_in_the_end(
    history: History, point: str
) -> None:
    former = _the_pod(history)
    history.world.die(former[0], epoch=former[1])
    history.a_worker_dies(IN_POD, point, False)
    history.judge()
    created = len(history.world.pods.names)
    assert created == {"intent": 1, "spawning": 2}[point]
    history.look()
    history.go_on()
    (epoch,) = history.open_epochs()
    assert history.world.pods_alive() == [(IN_POD, epoch)]
    assert len(history.world.pods.names) == 2


def test_what_is_not_seen_while_the_api_server_is_away_is_not_gone(history: History) -> None:
    key = _the_pod(history)
    history.around("no API server")
    history.look(after_s=310)
    assert history.open_epochs() == [key[1]]
    history.pod("it is removed")
    assert history.open_epochs() == [key[1]]
    history.around("well")
    assert key[1] not in history.open_epochs()


def test_a_pod_that_a_user_deletes_is_followed_once_its_end_is_seen(history: History) -> None:
    key = _the_pod(history)
    history.pod("a user deletes it")
    assert history.open_epochs() == [key[1]]
    history.world.leave(key[0], epoch=key[1])
    history.look()
    assert history.world.pods.has_exit(key)
    history.go_on()
    assert [one.driver for one in history.writing()] == history.open_epochs() != [key[1]]


def test_a_driver_that_still_runs_when_its_node_returns_is_superseded(history: History) -> None:
    former = _the_pod(history)
    history.pod("its node is lost")
    (successor,) = history.open_epochs()
    history.go_on()
    history.pod("its node returns")
    assert former in history.world.pods_alive()
    assert [one.driver for one in history.writing()] == [former[1]]
    history.pod("it is superseded")
    assert history.world.pods_alive() == [(IN_POD, successor)]
    history.go_on()
    assert history.writing() == []  # what ended after its successor's start was not counted on
    history.look(after_s=31)
    history.go_on()
    assert [one.driver for one in history.writing()] == [successor]


def test_a_node_that_returns_before_anybody_has_looked_changes_nothing(history: History) -> None:
    key = _the_pod(history)
    history.a_pod_or_its_node_changes(0, "its node is lost", False)
    history.pod("its node returns")
    history.go_on()
    assert history.open_epochs() == [key[1]]
    assert [one.driver for one in history.writing()] == [key[1]]


def test_a_pod_of_a_host_that_was_declared_gone_is_succeeded_by_one_of_another_host(
    history: History,
) -> None:
    former = _the_pod(history)
    history.around("another host looks")
    history.the_host_is_declared_gone(IN_POD)
    history.judge()
    history.look(after_s=1)
    (successor,) = history.open_epochs()
    history._all_is_there()
    history.world.goes_well(unless=lambda name: name != IN_POD)
    history.judge()
    assert [one.driver for one in history.writing()] == [former[1]]
    history.look(after_s=31)
    history.world.goes_well(unless=lambda name: name != IN_POD)
    history.judge()
    assert [one.driver for one in history.writing()] == [successor]
    ended = Run.objects.filter(driver__epoch=former[1]).exclude(outcome=RunOutcome.OPEN)
    assert ended.exists()
    assert Driver.objects.get(epoch=former[1]).end_wanted == Reason.HOST_GONE
