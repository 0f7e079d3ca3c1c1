"""Run every static check, also after one has failed, so that one run shows all problems."""

import sys
from pathlib import Path

from steps import run, told

BIN = Path(sys.executable).parent
#: What is checked -> the command.
CHECKS = {
    "format": (sys.executable, "-m", "ruff", "format", "--check", "."),
    "style": (sys.executable, "-m", "ruff", "check", "."),
    "types": (sys.executable, "-m", "mypy", "."),
    "import contracts": (str(BIN / "lint-imports"),),
    "templates": (sys.executable, "-m", "djlint", "templates", "--lint", "--quiet"),
}

if __name__ == "__main__":
    with told():
        codes = [run(*command, go_on=True, part=name) for name, command in CHECKS.items()]
    sys.exit(max(codes))
