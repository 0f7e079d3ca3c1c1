"""Build a release: both wheels, the exact versions, and the bill of materials.

    python bootstrap/dist.py [FOLDER]

Wheels are built with this environment's setuptools, from a copy of the source, because building
leaves folders behind. No network is needed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from run import REPOSITORY, fail, print_line

#: Excluded from wheels, at the top of the checkout or anywhere in it.
_LEFT_OUT = (".*", "var", "dist", "build", "*.egg-info", "node_modules", "__pycache__", "tests")
LIMIT_S = 600


def wheels(target: Path) -> list[Path]:
    """Build the wheels for the server and the command into a folder; return them."""
    with tempfile.TemporaryDirectory(prefix="headgate-dist-") as scratch:
        copy, built = Path(scratch) / "headgate", Path(scratch) / "built"
        shutil.copytree(REPOSITORY, copy, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        for source in (copy, copy / "cli"):
            _build(source, built)
        target.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(wheel, target)) for wheel in sorted(built.glob("*.whl"))]


def _build(source: Path, target: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
            *("--no-index", "--disable-pip-version-check", "-w", str(target), str(source)),
        ],
        # Files in a wheel are no newer than the release's last commit, if git knows it.
        env={**os.environ, "SOURCE_DATE_EPOCH": _changed_at()},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        fail(f"{source.name} could not be built.", "The lines above show the cause.")


def _changed_at() -> str:
    """Return the checkout's commit time, in seconds, which makes builds reproducible."""
    command = ["git", "-C", str(REPOSITORY), "log", "-1", "--format=%ct"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return "315532800"
    return commit.stdout.strip() or "315532800"  # 1980, the first year of zip files


def main(arguments: list[str]) -> None:
    """Build everything, and print the location of the files."""
    target = Path(arguments[0] if arguments else REPOSITORY / "dist").resolve()
    server = next(path for path in wheels(target) if path.name.startswith("headgate_server-"))
    release = "-".join(server.name.split("-")[:2])
    with zipfile.ZipFile(server) as wheel:
        if not any(re.fullmatch(r"queries/jvm/[^/]+\.jar", name) for name in wheel.namelist()):
            fail(
                f"{server.name} lacks Headgate's Java classes.",
                "Install Java 17 or newer, or set JAVA_HOME; then try again.",
            )
        exact = wheel.read("headgate_server/data/constraints.txt")
    (target / f"{release}-constraints.txt").write_bytes(exact)
    bill = Path(__file__).with_name("sbom.py")
    subprocess.run(
        [sys.executable, str(bill), str(target / f"{release}.cdx.json")],
        stdout=subprocess.DEVNULL,
        timeout=LIMIT_S,
        check=True,
    )
    for file in sorted(target.iterdir()):
        print_line(f"{file.stat().st_size / 1e3:8.0f} kB  {file}")


if __name__ == "__main__":
    main(sys.argv[1:])
