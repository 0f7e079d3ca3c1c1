"""Resolve the requirements (requirements*.in) into locked versions (requirements*.txt).

Each version comes with the digests of its files: pip then installs nothing else under its name,
whatever index it asks.
"""

import sys

from steps import run

if __name__ == "__main__":
    for name in ("requirements", "requirements-dev"):
        run(
            *(sys.executable, "-m", "uv", "pip", "compile", "--universal"),
            *("--python-version", "3.11", "--no-emit-index-url", "--no-emit-find-links"),
            "--generate-hashes",
            # pip 23 of Debian 12 asks for the digests of `coverage[toml]` by that name.
            "--no-strip-extras",
            *(*sys.argv[1:], f"{name}.in", "-o", f"{name}.txt"),
        )
