"""Resolve the requirements (*.in) into locked versions (*.txt): Headgate's, and a Spark version's.

Each version includes the digests of its files, so that pip does not install any other file under
that name, regardless of the index that it uses.
"""

import sys
from pathlib import Path

from steps import run

if __name__ == "__main__":
    of_sparks = [
        str(path.with_suffix("")) for path in sorted(Path("connectors/sparks").glob("*.in"))
    ]
    for name in ("requirements", "requirements-dev", *of_sparks):
        run(
            *(sys.executable, "-m", "uv", "pip", "compile", "--universal"),
            *("--python-version", "3.11", "--no-emit-index-url", "--no-emit-find-links"),
            "--generate-hashes",
            # pip 23 on Debian 12 looks up the digests for `coverage[toml]` by that name.
            "--no-strip-extras",
            # A Spark folder has only what differs from our own environment.
            *(["--no-deps"] if name in of_sparks else []),
            *(*sys.argv[1:], f"{name}.in", "-o", f"{name}.txt"),
        )
