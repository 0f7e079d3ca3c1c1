"""Watch over checkpoints that are not local, so that this driver ends if a later start owns one.

The watch itself is Java (`queries/jvm/Fence.java`): it halts the JVM even if this Python process is
stopped or waits for users' code. So nothing ever ends a driver for being slow: neither code that
holds the GIL nor a full garbage collection nor a busy host delays an answer that means something.
A stopped JVM asks nothing, but it writes nothing either; when it wakes, it asks within an interval,
and the store refuses its next log entry (`queries/jvm/CheckpointFiles.java`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queries.domain.checkpoints.fence import CALL_S, silence_s
from queries.domain.checkpoints.lock_files import owner_object, owners_folder
from queries.domain.protocol import CUT_OFF, EXIT_CHECKPOINT_LOST


@dataclass(frozen=True, slots=True)
class Fence:
    """Begins the watches of one driver."""

    jvm: Any
    conf: Callable[[], Any]  # Hadoop's configuration
    heartbeat: Path  # its time is that of the last heartbeat of this host's worker
    watch_s: float  # between two questions
    missing: str = ""  # why the JVM lacks our classes, "" if it has them

    def watch(self, location: str, number: int) -> Any:
        """Halt the JVM once an owner object above the number exists; `end()` ends the watch."""
        following = owner_object(owners_folder(location), number + 1)
        return self.jvm.headgate.Fence.begin(
            self.conf(),
            self.jvm.org.apache.hadoop.fs.Path(following),
            str(self.heartbeat),
            _ms(self.watch_s),
            _ms(CALL_S),
            _ms(silence_s(self.watch_s)),
            EXIT_CHECKPOINT_LOST,
            CUT_OFF,
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
