"""Run every static check, even after a failure, so that one run shows all problems."""

import sys
from pathlib import Path

from steps import print_durations, run

BIN = Path(sys.executable).parent
#: Name of the check -> its command.
CHECKS = {
    "format": (sys.executable, "-m", "ruff", "format", "--check", "."),
    "style": (sys.executable, "-m", "ruff", "check", "."),
    "types": (sys.executable, "-m", "mypy", "."),
    "import contracts": (str(BIN / "lint-imports"),),
    "templates": (sys.executable, "-m", "djlint", "templates", "--lint", "--quiet"),
    "commit messages": (sys.executable, str(Path(__file__).with_name("commit_messages.py"))),
}

if __name__ == "__main__":
    with print_durations():
        codes = [run(*command, go_on=True, part=name) for name, command in CHECKS.items()]
    sys.exit(max(codes))
