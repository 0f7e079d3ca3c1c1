"""Of several starts on a checkpoint one owns it: on a real S3 gateway and a real HDFS."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Timer
from typing import Any

import pytest

from queries.domain.checkpoints.ownership import fence_s, owner_file, owner_object, owners_folder
from queries.runtime.checkpoints.owners import CheckpointRefused, Owner, Owners, Ownership
from tests.storage.stores import HadoopJvm, Store

ROUNDS = 20
S3, HDFS = pytest.param("s3", marks=pytest.mark.s3), pytest.param("hdfs", marks=pytest.mark.hdfs)


class Place:
    """A new checkpoint's location in a store, and the drivers that want it."""

    def __init__(self, store: Store, jvm: HadoopJvm) -> None:
        self.store, self.jvm = store, jvm
        self.files = jvm.files(store)
        self.location = store.place("delays")

    def find(self, location: str) -> tuple[Any, Any]:
        """Return the store's file system and a path in it."""
        return self.files, self.jvm.path(location)

    def taker(self, host: str = "one", *, installation: str = "here") -> Owners:
        """Return a driver's view of the owner objects."""
        return Owners(Owner(installation, 1, host), self.find)

    def put(self, path: str, text: str) -> None:
        """Write an object as somebody else would."""
        stream = self.files.create(self.jvm.path(path), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def names(self) -> list[str]:
        """Return the names of the owner objects."""
        found = self.files.listStatus(self.jvm.path(owners_folder(self.location)))
        return sorted(str(status.getPath().getName()) for status in found)

    def meanwhile(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        """Do something between the next look at the objects and the creation that follows it."""
        seen = Owners._list

        def look(owners: Owners, folder: str) -> dict[int, int]:
            found = seen(owners, folder)
            monkeypatch.setattr(Owners, "_list", seen)
            act()
            return found

        monkeypatch.setattr(Owners, "_list", look)


@pytest.fixture(params=[S3, HDFS])
def place(request: pytest.FixtureRequest, hadoop_jvm: HadoopJvm) -> Iterator[Place]:
    made = Place(request.getfixturevalue(request.param), hadoop_jvm)
    yield made
    made.files.close()


def _refused(
    taker: Owners, place: Place, epoch: int, *, takeover: bool = False
) -> CheckpointRefused:
    with pytest.raises(CheckpointRefused) as refused:
        taker.own(place.location, epoch, takeover=takeover)
    return refused.value


def test_each_start_owns_by_the_next_number_and_says_nothing_of_a_missing_fence(
    place: Place,
) -> None:
    assert place.taker().own(place.location, 1, takeover=False) == Ownership(1)
    assert place.taker().own(place.location, 2, takeover=False) == Ownership(2)
    assert place.names() == [f"{number:020}.json" for number in (1, 2)]
    text = place.jvm.read(place.files, owner_object(owners_folder(place.location), 2))
    assert text == b'{"driver": 1, "epoch": 2, "host": "one", "installation": "here"}'


@pytest.mark.promise
def test_of_starts_at_the_same_moment_exactly_one_owns_the_checkpoint(place: Place) -> None:
    takers = [place.taker(name) for name in ("one", "two")]
    for turn in range(ROUNDS):
        place.location = place.store.place(f"delays-{turn}")
        barrier = Barrier(len(takers))

        def start(taker: Owners, barrier: Barrier = barrier) -> Ownership | None:
            barrier.wait(60)
            with suppress(CheckpointRefused):
                return taker.own(place.location, 7, takeover=False)
            return None

        with ThreadPoolExecutor(len(takers)) as pool:
            owned = list(pool.map(start, takers))
        numbers = [each.number for each in owned if each is not None]
        # Both may own one after the other; then the watch of the first finds the second's number.
        assert numbers
        assert len(set(numbers)) == len(numbers)
        assert max(numbers) == len(place.names())


@pytest.mark.guarantee("G-FENCE-3")
def test_a_start_that_was_overtaken_before_it_created_its_object_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = place.taker("two")
    place.meanwhile(monkeypatch, lambda: second.own(place.location, 2, takeover=False))
    refused = _refused(place.taker(), place, 3)
    assert refused.error.refused == "held"
    assert "Another start was faster" in refused.error.message
    assert place.names() == [f"{1:020}.json"]
    assert b'"host": "two"' in place.jvm.read(
        place.files, owner_object(owners_folder(place.location), 1)
    )


@pytest.mark.guarantee("G-FENCE-3")
def test_a_start_that_slept_until_its_number_was_removed_again_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = owner_object(owners_folder(place.location), 12)
    place.meanwhile(monkeypatch, lambda: place.put(later, '{"installation": "here", "epoch": 1}'))
    refused = _refused(place.taker(), place, 2)
    assert refused.error.refused == "held"
    assert later in refused.error.message


def test_a_start_below_the_epoch_of_the_owner_is_fenced(place: Place) -> None:
    place.taker().own(place.location, 7, takeover=False)
    refused = _refused(place.taker(), place, 6)
    assert (refused.error.refused, refused.error.owner_epoch) == ("fenced", 7)
    assert len(place.names()) == 1


def test_another_installations_checkpoint_is_refused_until_a_takeover_is_confirmed(
    place: Place,
) -> None:
    place.taker("far", installation="there").own(place.location, 900, takeover=False)
    refused = _refused(place.taker(), place, 1)
    assert refused.error.refused == "foreign"
    assert "(there, last on host far)" in refused.error.message
    waits = Ownership(2, wait_s=fence_s(0))
    assert place.taker().own(place.location, 1, takeover=True) == waits


@pytest.mark.parametrize("far", [Owner("there", 1, "one"), Owner("here", 1, "two")])
def test_a_takeover_waits_for_a_driver_elsewhere_even_if_it_is_started_again(
    place: Place, far: Owner
) -> None:
    Owners(replace(far, watch_s=4), place.find).own(place.location, 1, takeover=False)
    first = place.taker().own(place.location, 2, takeover=True)
    assert first.wait_s == fence_s(4)
    time.sleep(2.5)  # more than the second in which stores tell times
    again = place.taker().own(place.location, 3, takeover=False)
    assert again.number == 3
    assert 0 < again.wait_s < first.wait_s


def test_the_owner_file_of_an_earlier_release_counts_as_number_0(place: Place) -> None:
    place.put(owner_file(place.location), Owner("here", 1, "one").text(5))
    assert _refused(place.taker(), place, 4).error.refused == "fenced"
    assert place.taker().own(place.location, 6, takeover=False) == Ownership(1)
    assert place.taker().own(place.location, 7, takeover=False) == Ownership(2)


def test_the_driver_of_an_earlier_release_elsewhere_is_waited_for(place: Place) -> None:
    place.put(owner_file(place.location), Owner("there", 1, "far").text(5))
    assert place.taker().own(place.location, 1, takeover=True).wait_s == fence_s(0)


def test_an_owner_that_is_still_writing_its_object_is_not_taken_over(place: Place) -> None:
    path = owner_object(owners_folder(place.location), 1)
    place.put(path, "")  # as HDFS shows a file until it is closed
    writing = Timer(0.3, place.put, [path, Owner("here", 2, "two").text(500)])
    writing.start()
    assert _refused(place.taker(), place, 499).error.refused == "fenced"
    writing.join()
    assert place.names() == [f"{1:020}.json"]


def test_an_object_that_was_never_completed_blocks_nobody(place: Place) -> None:
    place.taker().own(place.location, 7, takeover=False)
    place.put(owner_object(owners_folder(place.location), 2), "")
    assert _refused(place.taker(), place, 6).error.refused == "fenced"
    assert place.taker().own(place.location, 8, takeover=False) == Ownership(3)


def test_an_object_that_cannot_be_read_needs_a_takeover(place: Place) -> None:
    place.put(owner_object(owners_folder(place.location), 1), "not JSON")
    refused = _refused(place.taker(), place, 1)
    assert refused.error.refused == "foreign"
    assert "cannot be read" in refused.error.message
    waits = Ownership(2, wait_s=fence_s(0))
    assert place.taker().own(place.location, 1, takeover=True) == waits


def test_a_start_that_was_overtaken_while_it_waited_is_refused(place: Place) -> None:
    taker = place.taker()
    owned = taker.own(place.location, 1, takeover=False)
    taker.confirm(place.location, owned.number)
    place.taker("two").own(place.location, 2, takeover=False)
    with pytest.raises(CheckpointRefused, match="Another start was faster"):
        taker.confirm(place.location, owned.number)


@pytest.mark.s3
def test_where_creation_by_condition_is_off_the_checkpoint_is_owned_but_not_fenced(
    s3: Store, hadoop_jvm: HadoopJvm
) -> None:
    off = {**s3.conf, "spark.hadoop.fs.s3a.create.conditional.enabled": "false"}
    place = Place(replace(s3, conf=off), hadoop_jvm)
    owned = place.taker().own(place.location, 7, takeover=False)
    assert owned.number == 1
    assert "(s3a) cannot create an object only if it is new" in owned.not_fenced
    assert _refused(place.taker(), place, 6).error.refused == "fenced"
    place.files.close()


@pytest.mark.guarantee("G-FENCE-3")
@pytest.mark.spark
def test_a_file_system_that_does_not_know_the_condition_does_not_fence(
    hadoop_jvm: HadoopJvm, tmp_path: Path
) -> None:
    place = Place(Store(tmp_path.as_uri(), None), hadoop_jvm)  # as S3A before Hadoop 3.4.2
    owned = place.taker().own(place.location, 7, takeover=False)
    assert owned.number == 1
    assert "(file) cannot create an object only if it is new" in owned.not_fenced
    place.files.close()


@pytest.mark.guarantee("G-FENCE-3")
@pytest.mark.s3
def test_a_store_that_ignores_the_condition_does_not_fence(
    s3: Store, hadoop_jvm: HadoopJvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To the store, this is a creation without a condition.
    monkeypatch.setattr(
        "queries.runtime.checkpoints.owners._CONDITIONAL", "fs.s3a.create.performance"
    )
    place = Place(s3, hadoop_jvm)
    owned = place.taker().own(place.location, 7, takeover=False)
    assert "ignores the condition" in owned.not_fenced
    assert len(place.names()) == 1
    place.files.close()


@pytest.mark.s3
def test_old_objects_are_removed_a_day_later_but_not_the_newest_ten(
    s3: Store, hadoop_jvm: HadoopJvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(s3, hadoop_jvm)
    for epoch in range(1, 13):
        place.taker().own(place.location, epoch, takeover=False)
    assert len(place.names()) == 12
    monkeypatch.setattr("queries.domain.checkpoints.ownership.MAX_OWNER_AGE_MS", -1)
    place.taker().own(place.location, 13, takeover=False)
    assert place.names() == [f"{number:020}.json" for number in range(4, 14)]
    place.files.close()
