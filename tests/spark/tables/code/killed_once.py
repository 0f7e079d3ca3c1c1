"""The recipes, whose driver is killed once: after every table has a batch, before Spark has it.

At that moment each query has written a batch that will be executed again.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import delta_batches
import iceberg_merge
import jdbc_upsert

BATCH = 1  # the second one: its table exists, and an earlier batch is in it
LIMIT_S = 240


def _killed_after(write: Callable[..., None], name: str) -> Callable[..., None]:
    def wrapped(*arguments: Any) -> None:
        write(*arguments)
        folder = Path(os.environ["KILLED"])
        if arguments[-1] != BATCH or (folder / "now").exists():
            return
        (folder / name).touch()
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if all((folder / each).exists() for each in os.environ["RECIPES"].split(",")):
                (folder / "now").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)

    return wrapped


jdbc_upsert._add = _killed_after(jdbc_upsert._add, "jdbc")
delta_batches._append = _killed_after(delta_batches._append, "append")
delta_batches._merge = _killed_after(delta_batches._merge, "merge")
iceberg_merge._merge = _killed_after(iceberg_merge._merge, "iceberg")

jdbc = jdbc_upsert.build
append = delta_batches.into_two
merge = delta_batches.merged
iceberg = iceberg_merge.build
