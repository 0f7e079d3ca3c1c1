"""Read Delta checkpoint files in a separate process: the part that runs isolated.

`python -m queries.storage.checkpoint_actions` reads from its input the size of a file, in a line,
and then the Parquet file. It responds with a line of JSON: {"actions": […], "more": …}, where
`more` is whether some of the live files were left out, or {"failed": "why"}. It ends when its input
is closed.
"""

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from queries.domain.tables.metadata import MOST_LIVE

#: Bytes of memory, and seconds of processor time: a few bytes of Parquet can unpack to anything.
MEMORY, PROCESSOR_S = 3 * 1024**3, 120
#: Characters of the live files' paths in one answer.
MOST_PATHS = 16 * 1024 * 1024
_ROWS = 10_000  # unpacked at once
#: All that is needed of the actions; statistics and partition values stay packed.
_COLUMNS = (
    *("metaData.id", "metaData.configuration", "txn.appId", "txn.version"),
    *("add.path", "add.size", "sidecar.path"),
)


def actions_in(data: bytes) -> Iterator[dict[str, Any]]:
    """Return a checkpoint's actions as a commit has them; live files without "dataChange".

    Raises pyarrow's errors for a damaged file.
    """
    with parquet.ParquetFile(pa.BufferReader(data)) as file:
        for batch in file.iter_batches(_ROWS, columns=list(_COLUMNS), use_threads=False):
            for row in batch.to_pylist():
                for kind, fields in row.items():
                    # A writer may keep a group of empty columns where an action is missing.
                    if fields is not None and any(column is not None for column in fields.values()):
                        yield {kind: _plain(fields)}


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an action with its map as JSON has it: Parquet's is a list of pairs."""
    conf = fields.get("configuration")
    return fields | {"configuration": dict(conf)} if conf is not None else fields


def answer(data: bytes) -> dict[str, Any]:
    """Return the response for a file."""
    actions, files, size = [], 0, 0
    for action in actions_in(data):
        if "add" in action:
            files, size = files + 1, size + len(str(action["add"].get("path")))
            if files > MOST_LIVE or size > MOST_PATHS:
                continue
        actions.append(action)
    more = files > MOST_LIVE or size > MOST_PATHS
    return {
        "actions": [action for action in actions if not more or "add" not in action],
        "more": more,
    }


def main() -> None:
    """Serve until the input is closed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not an answer
    while line := sys.stdin.buffer.readline():
        data = sys.stdin.buffer.read(int(line))
        try:
            reply = answer(data)
        except Exception as error:  # of a damaged file; a few kinds, and pyarrow's own
            reply = {"failed": f"{type(error).__name__}: {error}"[:300]}
        answers.write(f"{json.dumps(reply)}\n")
        answers.flush()


if __name__ == "__main__":
    main()
