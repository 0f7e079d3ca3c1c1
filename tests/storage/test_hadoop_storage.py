"""What Headgate does with files works the same on every storage that Hadoop reaches."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from queries.storage.hadoop import HadoopStorage, StorageFailed
from tests.storage.servers import StorageJvm
from tests.storage.stores import Store


@pytest.fixture(
    params=[pytest.param("s3", marks=pytest.mark.s3), pytest.param("hdfs", marks=pytest.mark.hdfs)]
)
def place(request: pytest.FixtureRequest) -> str:
    store: Store = request.getfixturevalue(request.param)
    return store.place("contract")


@pytest.fixture
def storage(s3_jvm: StorageJvm) -> HadoopStorage:
    # The same JVM serves HDFS: Hadoop's client is among Spark's jars, and needs no configuration.
    return s3_jvm.storage


def test_what_was_written_is_listed_and_read(storage: HadoopStorage, place: str) -> None:
    assert storage.list(place, deep=True, most=10).entries == ()
    for name in ("offsets/0", "offsets/1", "metadata"):
        storage.write(place, name, name.encode())
    storage.write(place, "metadata", b"again")
    top = {entry.name: entry.folder for entry in storage.list(place, most=10).entries}
    assert top == {"offsets": True, "metadata": False}
    every = storage.list(place, deep=True, most=10)
    assert {entry.name: entry.bytes for entry in every.entries} == {
        **{"offsets/0": 9, "offsets/1": 9},
        "metadata": 5,
    }
    assert all(entry.modified_at is not None for entry in every.entries)
    found = storage.read(place, ["metadata", "offsets/1", "offsets/7"], most=100)
    assert {name: content.data for name, content in found.items()} == {
        "metadata": b"again",
        "offsets/1": b"offsets/1",
    }


def test_a_long_listing_is_cut_and_says_so(storage: HadoopStorage, place: str) -> None:
    for number in range(4):
        storage.write(place, f"commits/{number}", b"v1")
    cut = storage.list(place, deep=True, most=3)
    assert (len(cut.entries), cut.more) == (3, True)
    assert not storage.list(place, deep=True, most=4).more


def test_a_file_that_is_too_long_is_refused(storage: HadoopStorage, place: str) -> None:
    storage.write(place, "metadata", b"x" * 101)
    with pytest.raises(StorageFailed, match="has more than 100 bytes"):
        storage.read(place, ["metadata"], most=100)


def test_of_many_creators_at_once_exactly_one_succeeds(storage: HadoopStorage, place: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        told = list(pool.map(lambda n: storage.create(place, "1.json", b"%d" % n), range(20)))
    assert sum(told) == 1
    assert storage.read(place, ["1.json"], most=9)["1.json"].data == b"%d" % told.index(True)


def test_a_copy_tells_what_was_gone(storage: HadoopStorage, place: str, tmp_path: Path) -> None:
    for name in ("a/1", "a/2"):
        storage.write(place, name, b"four")
    done = storage.copy(place, ["a/1", "a/2", "a/3"], f"{place}-copy")
    assert (done.files, done.bytes, done.missing) == (2, 8, ("a/3",))
    here = tmp_path / "here"
    assert storage.copy(place, ["a/1"], here.as_uri()).files == 1
    assert [path.name for path in (here / "a").iterdir()] == ["1"]  # no checksum beside it
    storage.delete(place)
    assert storage.list(place, deep=True, most=10).entries == ()
    storage.delete(place)
    assert len(storage.list(f"{place}-copy", deep=True, most=10).entries) == 2


@pytest.mark.guarantee("G-STORE-1")
def test_a_name_that_leads_out_of_its_folder_is_refused(storage: HadoopStorage, place: str) -> None:
    for name in ("../other", "/etc/passwd", ""):
        with pytest.raises(StorageFailed, match="not a name inside a folder"):
            storage.write(place, name, b"")


@pytest.mark.s3
def test_a_missing_bucket_is_named(storage: HadoopStorage) -> None:
    with pytest.raises(StorageFailed, match=r"s3a://no-such-bucket/x: .*does not exist"):
        storage.list("s3a://no-such-bucket/x", most=1)


@pytest.mark.s3
def test_an_unused_storage_jvm_ends_by_itself(s3: Store, tmp_path: Path) -> None:
    jvm = StorageJvm(tmp_path / "jvm", s3.conf, idle_s=1)
    assert jvm.process.wait(60) == 0
    with pytest.raises(StorageFailed, match="the storage JVM does not answer"):
        jvm.storage.list(s3.root, most=1)
    jvm.end()


def test_files_are_moved_and_an_interrupted_move_is_finished(
    storage: HadoopStorage, place: str
) -> None:
    for name in ("out/part-0", "out/day=1/part-1", "out/part-2"):
        storage.write(place, name, name.encode())
    storage.write(place, "aside/part-2", b"half")  # of a move that was interrupted
    names = ["part-0", "day=1/part-1", "part-2", "part-gone"]
    assert storage.move(f"{place}/out", names, f"{place}/aside") == 3
    assert storage.move(f"{place}/out", names, f"{place}/aside") == 0
    assert not storage.list(f"{place}/out", deep=True, most=10).entries
    found = storage.read(f"{place}/aside", names, most=100)
    assert {name: content.data for name, content in found.items()} == {
        name: f"out/{name}".encode() for name in names[:3]
    }
