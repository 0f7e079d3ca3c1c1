"""A file sink's log put back, seeded and moved aside; nothing is ever deleted."""

import json
import os
import time
from pathlib import Path

import pytest

from queries.checkpoints.file_sink import DroppedFiles, FileSink
from queries.checkpoints.snapshot import CannotCopy
from tests.checkpoints.forms import names, put, tree


def _write(out: Path, batch: int, *, name: str = "", day: str = "") -> None:
    name = name or f"part-{batch:05}-c000.json"
    place = out / day / name if day else out / name
    put(place, f'{{"batch":{batch}}}\n')
    put(place.with_name(f".{name}.crc"), "sum")
    uri = "file://" + str(place).replace(" ", "%20").replace("=", "%3D")
    put(out / f"_spark_metadata/{batch}", f"v1\n{json.dumps({'path': uri, 'action': 'add'})}")
    put(out / f"_spark_metadata/.{batch}.crc", "sum")


def _compact(out: Path, upto: int, *, purge: bool) -> None:
    log = out / "_spark_metadata"
    lines = [(log / str(n)).read_text().split("\n")[1] for n in range(upto + 1)]
    put(log / f"{upto}.compact", "\n".join(["v1", *lines]))
    for n in range(upto + 1):
        if purge or n == upto:
            (log / str(n)).unlink()
            (log / f".{n}.crc").unlink()


def _sink(out: Path) -> FileSink:
    found = FileSink.at(str(out))
    assert found is not None
    return found


def _log(out: Path) -> set[str]:
    return {name for name in names(out / "_spark_metadata") if not name.startswith(".")}


def test_a_sink_is_found_by_its_path_where_it_is_on_this_machine(tmp_path: Path) -> None:
    assert FileSink.at(f"file://{tmp_path}/out") == FileSink(tmp_path / "out")
    assert FileSink.at("s3a://bucket/out") is None
    assert FileSink.at("out") is None


def test_partitioned_files_with_odd_names_go_aside_with_their_checksums(tmp_path: Path) -> None:
    out = tmp_path / "out put"
    for batch in range(4):
        _write(out, batch, day=f"day=2026-01-0{batch}")
    _sink(out).put_back(1, "trial")
    assert _log(out) == {"0", "1"}
    left = {
        str(path.relative_to(out)) for path in out.rglob("part-*") if "_headgate" not in str(path)
    }
    assert left == {
        "day=2026-01-00/part-00000-c000.json",
        "day=2026-01-01/part-00001-c000.json",
    }
    aside = out / "_headgate/trial"
    assert names(aside / "day=2026-01-03") == {"part-00003-c000.json", ".part-00003-c000.json.crc"}


def test_a_compacted_entry_above_the_batch_goes_and_what_it_holds_of_earlier_ones_stays(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    for batch in range(12):
        _write(out, batch)
    _compact(out, 9, purge=False)
    assert _sink(out).newest() == 11
    _sink(out).put_back(6, "trial")
    assert _log(out) == set("0123456")
    assert len([name for name in names(out) if name.startswith("part-")]) == 7


def test_from_a_compacted_entry_below_the_batch_the_log_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for batch in range(14):
        _write(out, batch)
    _compact(out, 9, purge=True)
    assert _sink(out).beyond(11) == DroppedFiles(
        (12, 13), ("part-00012-c000.json", "part-00013-c000.json")
    )
    with pytest.raises(CannotCopy, match="cannot be rolled back to batch 6: entry 0"):
        _sink(out).put_back(6, "trial")


def test_putting_back_twice_is_putting_back_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for batch in range(6):
        _write(out, batch)
    first = _sink(out).put_back(2, "trial")
    once = tree(out)
    assert _sink(out).put_back(2, "trial") == first
    assert tree(out) == once


def test_part_files_of_an_interrupted_batch_go_aside_and_older_strangers_stay(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    put(out / "part-somebody-elses.json", "{}")
    long_ago = time.time() - 3600
    os.utime(out / "part-somebody-elses.json", (long_ago, long_ago))
    for batch in range(3):
        _write(out, batch)
    put(out / "part-half.json", "{")
    put(out / "notes.txt", "mine")
    later = time.time() + 10
    os.utime(out / "part-half.json", (later, later))
    _sink(out).put_back(2, "trial")
    assert "part-half.json" in names(out / "_headgate/trial")
    assert {"part-somebody-elses.json", "notes.txt", "part-00002-c000.json"} <= names(out)


def test_a_sink_that_was_never_written_has_nothing_to_put_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert _sink(out).newest() is None
    assert _sink(out).put_back(3, "trial") == DroppedFiles((), ())
    _sink(out).move_aside("trial")
    assert names(out) == {"_headgate"}


def test_a_sink_moved_aside_is_as_if_never_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for batch in range(3):
        _write(out, batch)
    put(out / "notes.txt", "mine")
    _sink(out).move_aside("trial")
    _sink(out).move_aside("trial")
    assert names(out) == {"_headgate", "notes.txt"}
    assert len([name for name in names(out / "_headgate/trial") if name[:5] == "part-"]) == 3


@pytest.mark.parametrize(
    ("batch", "entries"),
    [
        (0, {"0"}),
        (3, {"0", "1", "2", "3"}),
        (9, {"9.compact"}),
        (12, {"9.compact", "10", "11", "12"}),
        (119, {"119.compact"}),
    ],
)
def test_a_seeded_log_is_what_sparks_next_compaction_wants(
    tmp_path: Path, batch: int, entries: set[str]
) -> None:
    out = tmp_path / "out"
    _sink(out).seed(batch)
    assert names(out / "_spark_metadata") == entries
    assert {path.read_text() for path in (out / "_spark_metadata").iterdir()} == {"v1"}
    _sink(out).seed(200)  # what is there is left
    assert names(out / "_spark_metadata") == entries
