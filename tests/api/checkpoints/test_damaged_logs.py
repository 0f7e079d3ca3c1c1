"""A damaged or strange checkpoint: each bad line is one unreadable line, the others stay."""

import json
import re
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from queries.checkpoints import batches
from queries.checkpoints.batches import batch_to_replay
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.state import operators
from queries.models.definitions import Checkpoint, Query
from queries.services.checkpoints.batch_repair import look_for_foreign_batches, read_batch
from queries.views.checkpoints.checkpoint import BatchLine, ends_of
from tests.checkpoints.forms import put, write_checkpoint
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

ABOUT = {"batchWatermarkMs": 0, "batchTimestampMs": 1_764_064_800_000, "conf": {}}
LATE_MS = 1_735_689_599_400_000  # the year 56971
REST = "/api/v1/queries/delays/batches/"


def offsets(*sources: str, version: str = "v1", **about: Any) -> str:
    return "\n".join([version, json.dumps({**ABOUT, **about}), *sources])


@pytest.fixture
def root(stage: Stage, tmp_path: Path, settings: LazySettings) -> Path:
    stage.now = timezone.now()
    settings.CHECKPOINTS_DIR = tmp_path / "cps"
    query = stage.query("delays")
    root = tmp_path / "cps" / "delays"
    Checkpoint.objects.filter(query=query).update(location=f"file://{root}")
    put(root / "metadata", '{"id":"6b1a3f0e-0000-4000-8000-000000000001"}')
    for batch in (0, 1, 2):
        put(root / f"offsets/{batch}", offsets(f'{{"t":{{"0":{10 * (batch + 1)}}}}}'))
        put(root / f"commits/{batch}", "v1\n{}")
    return root


def rows(client: APIClient) -> dict[int, dict[str, Any]]:
    answer = client.get(REST)
    assert answer.status_code == 200
    return {row["batch"]: row for row in answer.json()["results"]}


DAMAGE: dict[str, tuple[str, bytes, str]] = {
    "not UTF-8": ("offsets/1", b'v1\n{}\n{"t":{"\xff\xfe":5}}', "not UTF-8"),
    "a source cut": ("offsets/1", offsets('{"t":{"0":9').encode(), "is not JSON"),
    "cut before its sources": ("offsets/1", offsets().encode(), "does not contain any source"),
    "empty": ("offsets/1", b"", "begins with ''"),
    "a later version": ("offsets/1", b"v9\n{}\n-", "begins with 'v9'"),
    "a time as text": ("offsets/1", offsets("-", batchTimestampMs="now").encode(), "is 'now'"),
    "a commit cut": ("commits/1", b'v1\n{"nextBatch', "is not JSON"),
    "nested without end": ("offsets/1", b"v1\n{}\n" + b"[" * 100_000, "is not JSON"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_one_unreadable_line_among_the_others(
    damage: str, client: Client, viewer: User, as_viewer: APIClient, root: Path
) -> None:
    name, data, said = DAMAGE[damage]
    (root / name).write_bytes(data)
    found = rows(as_viewer)
    assert [found[batch]["state"] for batch in (0, 1, 2)] == [
        *("committed", "unreadable", "committed")
    ]
    assert said in found[1]["problem"]
    client.force_login(viewer)
    assert Page(client, "/queries/delays/checkpoint/").text.count("Unreadable") == 1
    assert said in Page(client, "/queries/delays/checkpoint/batches/1/").text
    for page in ("state/", "kept/", "batches/2/"):
        assert client.get(f"/queries/delays/checkpoint/{page}").status_code == 200


def test_a_damaged_newest_batch_refuses_a_preview_with_the_reason(
    as_operator: APIClient, as_author: APIClient, root: Path
) -> None:
    (root / "offsets/2").write_text(offsets('{"t":{"0":9'))
    body = {"to": "earliest", "dry_run": True}
    answer = as_author.post("/api/v1/queries/delays/reset/", body, format="json")
    assert answer.status_code == 200
    assert "is not JSON" in answer.json()["refusal"]
    rewind = as_author.post(
        "/api/v1/queries/delays/rewind/", {"batch": 0, "dry_run": True}, format="json"
    )
    assert rewind.status_code in (200, 409)
    assert "is not JSON" in json.dumps(rewind.json())


def test_a_file_whose_name_is_no_number_is_passed_over(as_viewer: APIClient, root: Path) -> None:
    for name in ("²", "٣", "1" * 40, "-1", "007", "1.tmp"):
        put(root / "offsets" / name, "v1\n{}\n-")
        put(root / "commits" / name, "v1\n{}")
    assert list(rows(as_viewer)) == [2, 1, 0]


def test_a_folder_in_a_batchs_place_is_unreadable(as_viewer: APIClient, root: Path) -> None:
    (root / "offsets/3").mkdir()
    assert rows(as_viewer)[3]["state"] == "unreadable"


def test_what_a_recreated_topic_held_is_unknown_and_never_negative(
    client: Client, viewer: User, as_viewer: APIClient, root: Path
) -> None:
    put(root / "offsets/3", offsets('{"t":{"0":4}}'))  # it ends below where batch 2 did
    put(root / "commits/3", "v1\n{}")
    found = rows(as_viewer)
    assert (found[3]["records"], found[3]["ranges"][0]["records"]) == (None, None)
    assert found[2]["records"] == 10
    client.force_login(viewer)
    for page in ("", "batches/3/", "compare/?one=2&other=3"):
        text = Page(client, f"/queries/delays/checkpoint/{page}").text
        assert not re.search(r"(?<!\w)[-−]26", text)  # a folder may be named "…-26"


def test_a_watermark_after_the_year_9999_is_said_to_be(
    client: Client, viewer: User, as_viewer: APIClient, root: Path
) -> None:
    put(root / "offsets/3", offsets('{"t":{"0":40}}', batchWatermarkMs=LATE_MS))
    put(root / "commits/3", "v1\n{}")
    found = rows(as_viewer)[3]
    assert (found["watermark"], found["watermark_after_9999"]) == (None, True)
    client.force_login(viewer)
    for page in ("", "batches/3/", "compare/?one=2&other=3"):
        text = Page(client, f"/queries/delays/checkpoint/{page}").text
        assert "after the year 9999" in text
    recalled = read_batch(CheckpointLogs(root), 3)
    assert recalled is not None
    assert recalled.watermark is None


def test_a_batch_whose_time_cannot_be_meant_stops_no_look(as_viewer: APIClient, root: Path) -> None:
    put(root / "offsets/3", offsets('{"t":{"0":40}}', batchTimestampMs=LATE_MS))
    put(root / "commits/3", "v1\n{}")
    assert rows(as_viewer)[3]["begun_at"] is None
    assert read_batch(CheckpointLogs(root), 3) is None
    look_for_foreign_batches(now=timezone.now())


def test_an_upgrade_to_named_sources_reads_on_from_their_places(
    client: Client, viewer: User, as_viewer: APIClient, root: Path
) -> None:
    put(root / "offsets/2", offsets('{"t":{"0":100,"1":90}}'))
    put(root / "offsets/3", offsets('orders:{"t":{"0":110,"1":95}}', version="v2"))
    put(root / "offsets/4", offsets('orders:{"t":{"0":110,"1":95}}', version="v2"))
    for batch in (3, 4):
        put(root / f"commits/{batch}", 'v3\n{"nextBatchWatermarkMs":0}')
    found = rows(as_viewer)
    assert (found[3]["records"], found[3]["upgraded"]) == (15, True)
    assert [(one["start"], one["end"]) for one in found[3]["ranges"]] == [(100, 110), (90, 95)]
    assert (found[4]["records"], found[4]["upgraded"]) == (0, False)
    logs = CheckpointLogs(root)
    assert batches.read_nothing(logs, 4)
    assert not batches.read_nothing(logs, 3)
    assert batch_to_replay(logs) == 3
    recalled = read_batch(logs, 3)
    assert recalled is not None
    assert recalled.sources[0]["startOffset"] == {"t": {"0": 100, "1": 90}}
    client.force_login(viewer)
    assert "identifies sources by name" in Page(client, "/queries/delays/checkpoint/").text


def test_a_cut_line_of_a_source_log_stands_among_the_files(
    client: Client, viewer: User, root: Path
) -> None:
    shutil.rmtree(root)
    write_checkpoint(root, batches=range(4), files_a_batch=2)
    log = root / "sources/0/2"
    log.write_text(log.read_text()[:-12])
    client.force_login(viewer)
    text = Page(client, "/queries/delays/checkpoint/batches/2/").text
    assert "/in/f2-0.json" in text
    assert "entry 2, line 3" in text
    assert "truncated or corrupted" in text


# --- any damage -------------------------------------------------------------------------

_VALID = {
    "offsets/0": offsets('{"t":{"0":10}}', '{"logOffset":0}'),
    "offsets/1": offsets('{"t":{"0":20}}', '{"logOffset":1}', batchWatermarkMs=5),
    "offsets/2": offsets('a:{"t":{"0":30}}', 'b:{"logOffset":2}', version="v2"),
    "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    "commits/1": 'v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[["x"]]}}',
    "sources/1/1": 'v1\n{"path":"file:///a","timestamp":1,"batchId":1}',
    "sources/1/0": 'v1\n{"path":"file:///b","timestamp":1,"batchId":0}',
    "state/0/_metadata/metadata": 'v1\n{"operatorInfo":{"operatorName":"dedupe"}}',
}
_VALUE = st.recursive(
    st.sampled_from([None, True, -1, 0, 2**62, 2**70, 1e300, float("nan"), "", "x", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["t", "0", "²", "logOffset", "path"]), inner, max_size=2)
    ),
    max_leaves=4,
)
_KEYS = st.sampled_from(
    [
        *("batchWatermarkMs", "batchTimestampMs", "conf", "nextBatchWatermarkMs"),
        *("stateUniqueIds", "path", "timestamp", "batchId", "operatorInfo", "stateStoreInfo"),
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, bytes]:
    """Return files of a checkpoint, some of them cut, garbled or of a wrong type."""
    found = {}
    for name, text in _VALID.items():
        data = text.encode()
        how = draw(st.sampled_from(["as it is", "cut", "garbled", "another type", "gone", "line"]))
        if how == "gone":
            continue
        if how == "cut":
            data = data[: draw(st.integers(0, len(data)))]
        elif how == "garbled":
            at = draw(st.integers(0, len(data) - 1))
            data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at + 1 :]
        elif how == "another type":
            lines = text.split("\n")
            lines[1] = json.dumps({draw(_KEYS): draw(_VALUE)})
            data = "\n".join(lines).encode()
        elif how == "line":
            data += f"\n{json.dumps(draw(_VALUE))}".encode()
        found[draw(st.sampled_from([name, name, name, f"{name}²"]))] = data
    return found


_PLACES = count()


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(files=damaged())
def test_a_page_of_batches_always_renders(files: dict[str, bytes], tmp_path: Path) -> None:
    place = tmp_path / str(next(_PLACES))
    for name, data in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    logs = CheckpointLogs(place)
    found = batches.page(logs)
    assert [one.number for one in found] == sorted(logs.begun(), reverse=True)
    lines = [BatchLine(one, one.records, True, "", ends_of(one)) for one in found]
    query = Query(name="delays")
    drawn = render_to_string("checkpoints/_batches.html", {"lines": lines, "query": query})
    assert drawn.count("data-row ") + drawn.count("data-row>") == len(found)
    for one in found:
        assert one.records is None or one.records >= 0
        batches.files_of(logs, one.number)
        batches.read_nothing(logs, one.number)
        batches.compare(logs, 0, one.number)
        read_batch(logs, one.number)
    batch_to_replay(logs)
    batches.pinned(logs)
    operators(logs)


@pytest.mark.parametrize("folder", ["offsets", "commits", "state", "sources", ""])
def test_a_folder_that_may_not_be_listed_is_said_and_takes_no_page_along(
    folder: str, client: Client, viewer: User, as_viewer: APIClient, stage: Stage, root: Path
) -> None:
    """A link that leads to itself is refused to everybody, to root too."""
    stage.query("arrivals")
    place = root / folder
    shutil.rmtree(place, ignore_errors=True)
    place.symlink_to(place)
    client.force_login(viewer)
    for address in ("/queries/", "/checkpoints/", "/queries/arrivals/", "/queries/delays/"):
        answer = client.get(address)
        assert answer.status_code == 200, address
    page = client.get("/queries/delays/checkpoint/")
    rest = as_viewer.get(REST)
    if folder in ("state", "sources"):
        assert rest.status_code == page.status_code == 200
        tab = client.get("/queries/delays/checkpoint/state/")
        assert tab.status_code in (200, 409)
        assert folder == "sources" or "cannot be listed" in tab.content.decode()
    else:
        assert rest.status_code == 409
        assert "cannot be listed" in rest.json()["detail"]
        assert "cannot be listed" in page.content.decode()
    look_for_foreign_batches(now=timezone.now())
