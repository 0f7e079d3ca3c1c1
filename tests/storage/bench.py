"""A query whose checkpoint or file sink is on S3 or HDFS, for stories; no Spark is involved."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.utils import timezone

from listeners.loops.slices import Leases
from queries.domain.states import OperationOutcome
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation
from queries.services.checkpoints import file_sinks, remote
from queries.services.procedures import engine
from queries.services.procedures.engine import advance, due_operations
from queries.tasks import PROCEDURES
from tests import pieces
from tests.checkpoints.forms import write_checkpoint, write_output
from tests.scenarios.stage import Stage
from tests.storage.servers import StorageJvm
from tests.storage.stores import Store


class Bench:
    """A query with a checkpoint on a storage, whose folders a test sees as local copies."""

    def __init__(self, stage: Stage, store: Store, jvm: StorageJvm, folder: Path) -> None:
        self.stage, self.store, self.jvm, self.seen = stage, store, jvm, folder / "seen"
        stage.now = timezone.now()
        stage.launcher.storage = jvm.socket
        self.location = store.place("checkpoints/delays")
        self.mine = folder / "written"

    def folder_of(self, location: str) -> Path:
        """Return a local copy of what is at a location now."""
        place = self.seen / uuid4().hex / location.rpartition("/")[2]
        self.jvm.storage.copy(location, self.files_in(location), place.as_uri())
        return place

    def there(self, location: str) -> bool:
        """Return whether there is anything at a location."""
        return bool(self.jvm.storage.list(location, deep=True, most=1).entries)

    @property
    def root(self) -> Path:
        """A local copy of the original checkpoint."""
        return self.folder_of(self.location)

    def define(
        self, *, store: str = "", batches: int = 10, sink: str = "", local: bool = False
    ) -> Query:
        """Define the query; `sink` is where it writes files, `local` keeps the checkpoint here."""
        source: dict[str, Any] = {
            "name": "flights",
            "format": "json",
            "schema": "tail STRING, delay INT",
        }
        source["options"] = {"path": f"{self.mine}-in"}
        spec: dict[str, Any] = {"sources": [source]}
        if sink:
            spec["sink"] = {"format": "json", "options": {"path": sink}}
            if sink.startswith(self.store.root):
                self.write_files(sink, range(batches))
        opens = ["s3"] if self.location.startswith("s3a://") else []
        self.stage.application("delays", connectors=opens)
        query = self.stage.query("delays", "delays", **spec)
        write_checkpoint(self.mine, batches=range(batches), store=store)
        if local:
            self.location = self.mine.as_uri()
        Checkpoint.objects.filter(query=query).update(location=self.location)
        if not local:
            self.upload()
            self.read()
        return query

    def write_files(self, sink: str, batches: range) -> None:
        """Write files and the log of a sink, as Spark does."""
        out = self.seen / uuid4().hex
        for batch in batches:
            write_output(out, batch, sink)
        self.jvm.storage.copy(out.as_uri(), self.files_in(out.as_uri()), sink)

    def files_in(self, location: str) -> list[str]:
        """Return the names of the files below a location."""
        found = self.jvm.storage.list(location, deep=True, most=10_000).entries
        return sorted(entry.name for entry in found)

    def read_sink(self) -> None:
        """Let the worker read the sink's log, as a page that previews an action asks it to."""
        query = self.stage.row("delays")
        assert not file_sinks.read_sink(query.pk, launcher=self.stage.launcher, now=timezone.now())

    def upload(self) -> None:
        """Put the local files into the bucket, through the gateway: it keeps ETags of its own."""
        files = [str(path.relative_to(self.mine)) for path in self.mine.rglob("*")]
        visible = [name for name in files if (self.mine / name).is_file() and "/." not in name]
        self.jvm.storage.copy(self.mine.as_uri(), visible, self.location)

    def read(self) -> None:
        """Let the worker read the checkpoint, as an open page asks it to."""
        current = Checkpoint.objects.get(query__name="delays", retired_at=None)
        for _ in range(3):
            if not remote.read_checkpoint(
                current.pk, launcher=self.stage.launcher, now=timezone.now()
            ):
                return
        raise AssertionError("the storage JVM is not found")

    def work(self, operation: Operation) -> Operation:
        """Let a worker take every step that can be taken, and supervision with it."""
        # Steps note the time of the clock on the wall, which a slow machine's story falls behind.
        self.stage.now = max(self.stage.now, timezone.now())
        for _ in range(8):
            for due in due_operations(now=timezone.now()):
                advance(
                    due,
                    procedures=PROCEDURES,
                    launcher=self.stage.launcher,
                    now=self.stage.now,
                )
            self.stage.wait(1)
        operation.refresh_from_db()
        return operation

    def done(self, operation: Operation) -> None:
        self.work(operation)
        assert (operation.outcome, operation.detail.text) == (OperationOutcome.DONE, "")

    @property
    def current(self) -> str:
        """The location of the query's current checkpoint."""
        return Checkpoint.objects.get(query__name="delays", retired_at=None).location

    @property
    def new(self) -> Path:
        """A local copy of the query's current checkpoint."""
        return self.folder_of(self.current)


@pytest.fixture(
    params=[pytest.param("s3", marks=pytest.mark.s3), pytest.param("hdfs", marks=pytest.mark.hdfs)]
)
def bench(
    stage: Stage,
    request: pytest.FixtureRequest,
    s3_jvm: StorageJvm,
    tmp_path: Path,
    settings: LazySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    store: Store = request.getfixturevalue(request.param)
    # Leases are renewed on a thread of their own, which cannot write to a test's transaction.
    monkeypatch.setattr(engine, "_leases", Leases(timedelta(hours=1)))
    settings.ALLOWED_PATHS = (store.root, str(tmp_path))
    settings.MIRRORS_DIR = tmp_path / "mirrors"
    settings.CONNECTORS_DIR = pieces.s3_connector().parent
    settings.DRIVERS_DIR = s3_jvm.socket.parent / "drivers"
    return Bench(stage, store, s3_jvm, tmp_path)
