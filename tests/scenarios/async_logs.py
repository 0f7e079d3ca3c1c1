"""A checkpoint's logs as a query with async progress tracking leaves them, for stories."""

import json
from pathlib import Path
from typing import Any

from queries.models.definitions import Checkpoint, Query
from tests.scenarios.stage import Stage

ASYNC = {"asyncProgressTrackingEnabled": "true"}


class AsyncQuery:
    """One query on the stage whose batches write real files, of some batches only."""

    def __init__(self, stage: Stage, root: Path, name: str = "flights", **spec: Any) -> None:
        self.stage, self.name = stage, name
        self.root = root / name
        sink = {"format": "noop", "options": dict(ASYNC), "output_mode": "append"}
        self.query: Query = stage.query(name, **{"sink": sink, **spec})
        Checkpoint.objects.filter(query=self.query).update(location=f"file://{self.root}")

    def log(self, *begun: int, committed: tuple[int, ...] | None = None) -> None:
        """Write offsets of these batches, and commits of them or of those named."""
        for folder, batches in (("offsets", begun), ("commits", committed or begun)):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
            for batch in batches:
                about = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}}
                text = f"v1\n{json.dumps(about)}\n{batch * 10}" if folder == "offsets" else "v1\n{}"
                (self.root / folder / str(batch)).write_text(text)

    def begun(self) -> list[int]:
        """Return the batches whose offsets are kept."""
        return sorted(int(path.name) for path in (self.root / "offsets").iterdir())

    def commit(self, *, kept: bool = True) -> None:
        """The open run commits the next batch; its offsets are kept, or not."""
        run = self.stage.run(self.name)
        last = run.last_batch if run.last_batch is not None else max(self.begun(), default=-1)
        self.stage.launcher.commit(run.pk, batch=last + 1)
        self.stage.look()
        if kept:
            self.log(last + 1)

    def spec(self) -> dict[str, Any]:
        """Return the newest definition."""
        found: dict[str, Any] = self.query.revisions.order_by("-number")[0].spec
        return found

    def options(self) -> dict[str, str]:
        """Return the newest definition's options of the sink."""
        options: dict[str, str] = self.spec()["sink"]["options"]
        return options

    def up(self) -> None:
        """Bring the query to RUNNING with a log full of gaps."""
        self.log(59, 74, 86, 98, 112)
        self.stage.start(self.name)
        self.stage.ready(self.name)
        self.stage.launcher.commit(self.stage.run(self.name).pk, batch=120)
        self.stage.look()
