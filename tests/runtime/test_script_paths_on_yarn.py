"""A script's paths where the default file system is a cluster's: never another place."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from queries.domain.protocol import KnownQuery, ScriptJob
from queries.runtime.code.stream_writers import settings_of
from queries.runtime.scripts.intercepted_starts import Meeting, StartRefused

ETL = "/user/etl/checkpoints/orders"  # as scripts for Hadoop clusters have it
RECORDED = f"file://{ETL}"


class _Locked(Exception):
    """The start has come as far as to the lock of a location."""


class _Locks:
    def take(self, location: str, **_: Any) -> None:
        raise _Locked(location)


def _start(
    text: str,
    *,
    default: str = "hdfs://nn:9000",
    name: str = "orders",
    known: tuple[KnownQuery, ...] = (),
) -> str:
    """Return the location that a start locks; raises `StartRefused`."""
    board = SimpleNamespace(read=lambda _: None, forget_query=lambda _: None)
    around: Any = SimpleNamespace(locks=_Locks(), board=board, roots=None)
    job = ScriptJob("job.py", "", (), "/tmp/work", "file:///tmp/checkpoints", known=known)
    files = SimpleNamespace(getDefaultUri=lambda _: SimpleNamespace(toString=lambda: default))
    jvm = SimpleNamespace(
        org=SimpleNamespace(
            apache=SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(FileSystem=files)))
        )
    )
    state = SimpleNamespace(newHadoopConf=lambda: None)
    session = SimpleNamespace(_jvm=jvm, _jsparkSession=SimpleNamespace(sessionState=lambda: state))
    writer: Any = SimpleNamespace(_df=SimpleNamespace(sparkSession=session))
    said = settings_of(writer)
    said.name, said.checkpoint = name, text
    with pytest.raises(_Locked) as locked:
        Meeting(job, around, epoch=1).begin(writer, lambda: None)
    return str(locked.value)


@pytest.mark.guarantee("G-YARN-1")
@pytest.mark.parametrize(
    ("text", "write"),
    [
        (ETL, f"Write hdfs://nn:9000{ETL}, or {RECORDED} for a folder of this host."),
        ("checkpoints/orders", "Write hdfs://nn:9000/FOLDER/checkpoints/orders, or file:///"),
        (f"hdfs://{ETL}", f"Write hdfs://nn:9000{ETL}."),
        (f"hdfs:{ETL}", f"Write hdfs://nn:9000{ETL}."),
    ],
)
def test_a_path_without_a_file_system_is_refused_with_the_one_to_write(
    text: str, write: str
) -> None:
    with pytest.raises(StartRefused) as refused:
        _start(text)
    assert f"checkpointLocation {text} " in str(refused.value)
    assert write in str(refused.value)


def test_a_uri_without_a_host_is_refused_where_the_default_is_the_disk() -> None:
    with pytest.raises(StartRefused, match=f"Write hdfs://NAMESERVICE{ETL}, with the cluster's"):
        _start(f"hdfs://{ETL}", default="file:///")


@pytest.mark.parametrize(
    ("text", "default", "location"),
    [
        (ETL, "file:///", RECORDED),
        ("ck", "file:///", f"file://{Path.cwd()}/ck"),
        (RECORDED, "hdfs://nn:9000", RECORDED),
        (f"hdfs://nn:9000{ETL}", "hdfs://nn:9000", f"hdfs://nn:9000{ETL}"),
        (f"hdfs://other{ETL}", "hdfs://nn:9000", f"hdfs://other{ETL}"),
    ],
)
def test_what_means_one_place_is_that_place(text: str, default: str, location: str) -> None:
    assert _start(text, default=default) == location


@pytest.mark.parametrize("name", ["orders", ""])
def test_a_known_query_keeps_its_recorded_location(name: str) -> None:
    identity = f"name:{name}" if name else f"checkpoint:{RECORDED}"
    known = KnownQuery(1, identity, RECORDED, "file:///user/etl/checkpoints/orders.rewound")
    assert _start(ETL, name=name, known=(known,)) == known.location
    with pytest.raises(StartRefused, match="names no file system"):
        _start("/user/etl/checkpoints/others", name=name, known=(known,))
