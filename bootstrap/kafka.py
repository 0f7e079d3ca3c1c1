"""Download connectors and the trial broker as jars with Maven, then start the broker.

    python bootstrap/kafka.py [--jars | --connector [NAME…]]

With `--jars`, nothing is started; with `--connector`, the broker's jars are not downloaded either,
and connectors other than Kafka's can be specified. Coordinates are in `connectors/*/pom.xml`. Each
jar folder is replaced as a whole and contains the digest of its pom: if the digest matches, nothing
is resolved and no network is needed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from run import REPOSITORY, fail, follow, say

STAMP = ".pom.sha256"


def main(arguments: list[str]) -> None:
    """Download missing jars, then exec the command that starts the broker."""
    home = Path(os.environ.get("HEADGATE_HOME") or REPOSITORY / "var").resolve()
    connectors = Path(os.environ.get("HEADGATE_CONNECTORS") or home / "connectors").resolve()
    for name in _named(arguments):
        resolve(name, connectors / name, what=f"the connector {name}")
    if "--connector" in arguments:
        return
    resolve("broker", home / "kafka" / "jars", what="the trial broker")
    if "--jars" not in arguments:
        os.execv(sys.executable, [sys.executable, "-m", "headgate_server", "manage", "kafka"])


def _named(arguments: list[str]) -> list[str]:
    """Return the requested connectors: Kafka's, unless others are specified."""
    names = [one for one in arguments if not one.startswith("-")] or ["kafka"]
    recipes = sorted(path.parent.name for path in REPOSITORY.glob("connectors/*/connector.toml"))
    if unknown := [name for name in names if name not in recipes]:
        fail(f"There is no recipe for {', '.join(unknown)}.", f"Choose {', '.join(recipes)}.")
    return names


def resolve(name: str, target: Path, *, what: str) -> None:
    """Make Maven copy the jars for `connectors/NAME/pom.xml` to a folder, unless they exist."""
    pom = REPOSITORY / "connectors" / name / "pom.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()
    stamp = target / STAMP
    if stamp.exists() and stamp.read_text().strip() == digest and any(target.glob("*.jar")):
        return
    maven = shutil.which("mvn")
    if maven is None:
        fail(
            f"Maven is missing: it is needed to resolve {what}.",
            "Install it (Debian, Ubuntu: `sudo apt-get install maven`); then try again.",
        )
    say(f"Resolving {what} by Maven…")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _copy_dependencies(str(maven), pom, aside)
        (aside / STAMP).write_text(digest + "\n")
        aside.chmod(0o755)
        if target.exists():
            target.rename(aside / ".before")
        aside.rename(target)
        shutil.rmtree(target / ".before", ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    jars = sorted(target.glob("*.jar"))
    size = sum(jar.stat().st_size for jar in jars) / 1e6
    say(f"  {len(jars)} jars, {size:.0f} MB, in {target}")


def _copy_dependencies(maven: str, pom: Path, target: Path) -> None:
    code, said = follow(
        [
            *(maven, "-B", "-f", str(pom), "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={target}"),
        ],
        r"Downloaded from \S+ \S+/([^/ ]+\.jar) \((.+?)(?: at .+)?\)",
        lambda fetched, found: f"{fetched} fetched: {found[1]} ({found[2]})",
    )
    if code:
        sys.stderr.write("".join(line for line in said if "ERROR" in line)[:4000])
        fail(
            f"Maven could not resolve {pom.relative_to(REPOSITORY)} (code {code}).",
            "Check the network, and that Maven can reach its repository (set a proxy or mirror "
            "in ~/.m2/settings.xml). Then try again; files that have been downloaded are not "
            "downloaded again.",
        )
    if not any(target.glob("*.jar")):
        fail(f"Maven did not copy any jar for {pom.relative_to(REPOSITORY)}.", "Check that file.")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
