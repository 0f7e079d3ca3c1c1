"""Run the benchmarks one after the other; a name as argument runs that one only."""

import sys
from pathlib import Path

from steps import run

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"

if __name__ == "__main__":
    wanted = set(sys.argv[1:])
    scripts = [file for file in sorted(FOLDER.glob("*.py")) if not file.name.startswith("_")]
    chosen = [file for file in scripts if not wanted or file.stem in wanted]
    if not chosen:
        names = ", ".join(file.stem for file in scripts)
        sys.exit(f"This benchmark does not exist. Choose one of: {names or 'none yet'}.")
    for script in chosen:
        run(sys.executable, "-m", f"benchmarks.{script.stem}")
