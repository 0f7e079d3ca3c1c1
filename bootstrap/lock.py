"""Resolve the requirements (requirements*.in) into locked versions (requirements*.txt).

Each version includes the digests of its files, so that pip does not install any other file under
that name, regardless of the index that it uses.
"""

import sys

from steps import run

if __name__ == "__main__":
    for name in ("requirements", "requirements-dev"):
        run(
            *(sys.executable, "-m", "uv", "pip", "compile", "--universal"),
            *("--python-version", "3.11", "--no-emit-index-url", "--no-emit-find-links"),
            "--generate-hashes",
            # pip 23 on Debian 12 looks up the digests for `coverage[toml]` by that name.
            "--no-strip-extras",
            *(*sys.argv[1:], f"{name}.in", "-o", f"{name}.txt"),
        )
