"""All checks that need no running; every one is run, so that one look shows everything."""

import sys
from pathlib import Path

from steps import run

BIN = Path(sys.executable).parent

if __name__ == "__main__":
    python = sys.executable
    codes = [
        run(python, "-m", "ruff", "format", "--check", ".", go_on=True),
        run(python, "-m", "ruff", "check", ".", go_on=True),
        run(python, "-m", "mypy", ".", go_on=True),
        run(str(BIN / "lint-imports"), go_on=True),
        run(python, "-m", "djlint", "templates", "--lint", "--quiet", go_on=True),
    ]
    sys.exit(max(codes))
