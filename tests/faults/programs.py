"""The programs of an installation, as its folder and its port tell of them."""

import json
import urllib.request
from pathlib import Path

from queries.launchers.process import identities as processes

PROGRAMS = {"valkey", "ingester", "worker", "beat", "web", "spark-ui", "watcher"}


class Programs:
    """Those of the installation in a folder, whose pages are at a port."""

    home: Path
    port: int

    def identities(self) -> dict[str, tuple[int, int]]:
        """Return (pid, start time) of each program that was started last."""
        found = {}
        for file in (self.home / "run").glob("*.process"):
            raw = json.loads(file.read_text())
            found[file.stem] = (raw["pid"], raw["start_time"])
        return found

    def living(self) -> set[str]:
        """Return the names of the programs that live."""
        return {name for name, who in self.identities().items() if processes.is_alive(*who)}

    def ready(self) -> bool:
        """Ask /readyz."""
        try:
            address = f"http://127.0.0.1:{self.port}/readyz"
            with urllib.request.urlopen(address, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
