"""Mask strings for another process: one JSON line in, one JSON line out, until its input ends.

A search for secrets keeps Python's lock, so a web process that searched a long string itself could
not respond to any request in the meantime, not even a health check. See `controlplane.masking`.
"""

import json
import os
import sys

from headgate_ground.masking import LocalSearcher


def main() -> None:
    """Serve requests until the parent process closes the pipe or ends."""
    os.nice(5)  # pages that need no long text come first
    searcher = LocalSearcher()
    for line in sys.stdin.buffer:
        kind, text = json.loads(line)
        answer = searcher.mask(text) if kind == "mask" else sorted(searcher.find(text))
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
