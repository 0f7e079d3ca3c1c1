"""What is known of a soak beside what its sinks hold; a file, so that it can be judged again."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "evidence.json"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the system said before it was stopped, and what the feed counted."""

    out: str  # the folder of the file sinks
    checkpoints: dict[str, str]  # by query
    starts: dict[str, list[str]]  # by query: when each of its runs was made
    taken: int  # records, by the broker
    stamped_late: int
    closing_ms: int  # the time of the flight that closed all windows
    told: list[int]  # the batches of the windows whose report was stored
    ledger: int  # late rows
    missing_batches: int  # of the windows, as Headgate counts them
    faults_ended: list[str]  # when each fault was over that met a process
    table: str = ""  # the format of the tables that took the place of files
    not_executed: tuple[int, ...] = ()  # of `told`: those that the sink had already committed

    def keep(self, folder: Path) -> None:
        """Write it into the soak's folder."""
        (folder / FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def kept(cls, folder: Path) -> "Evidence":
        """Return what was written; raises `FileNotFoundError` where the soak did not get there."""
        return cls(**json.loads((folder / FILE).read_text()))
