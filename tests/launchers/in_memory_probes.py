"""The probes of the launcher without processes: they answer when a test says so."""

import socket
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from headgate_ground.untrusted import connected
from queries.domain.protocol import DriverSpec, ExitReport
from queries.domain.supervision.observation import Liveness, Sighting
from queries.launchers.base import LaunchRefused


@dataclass(slots=True)
class Probe:
    """One probe: what it was asked, and what it has said."""

    spec: DriverSpec
    task: str
    result: str = ""
    exit: ExitReport | None = None
    gone: bool = False


class InMemoryProbes:
    """The part of `Launcher` that is about probes, kept to the letter."""

    refusal: str

    def __init__(self) -> None:
        self.probes: dict[tuple[str, int], Probe] = {}
        self.storage = Path("/nowhere/storage.sock")

    def launch_probe(self, spec: DriverSpec, task: str) -> None:
        """Start a probe that is alive at once; again: change nothing."""
        if self.refusal:
            raise LaunchRefused(self.refusal)
        self.probes.setdefault((spec.application, spec.epoch), Probe(spec, task))

    def sight_probe(self, application: str, epoch: int) -> Sighting:
        """Return what a look at the host would show."""
        probe = self.probes.get((application, epoch))
        if probe is None:
            return Sighting(Liveness.ABSENT)
        if probe.gone:
            return Sighting(Liveness.GONE)
        return Sighting(Liveness.EXITED if probe.exit else Liveness.ALIVE, exit=probe.exit)

    def probe_result(self, application: str, epoch: int) -> str:
        """Return what the test has let it find."""
        probe = self.probes.get((application, epoch))
        return probe.result if probe else ""

    def end_probe(self, application: str, epoch: int, *, grace_s: float = 0) -> None:
        """SIGKILL: a living probe exits with it."""
        probe = self.probes.get((application, epoch))
        if probe is not None and probe.exit is None and not probe.gone:
            probe.exit = _exit("SIGKILL", "SIGKILL")

    def end_probes(self) -> None:
        """SIGKILL every probe."""
        for application, epoch in self.probes:
            self.end_probe(application, epoch)

    def prune_probes(self, application: str, keep: int) -> None:
        """Forget ended probes beyond the newest `keep`."""
        epochs = sorted((e for name, e in self.probes if name == application), reverse=True)
        for epoch in epochs[max(1, keep) :]:
            if self.probes[application, epoch].exit is not None:
                del self.probes[application, epoch]

    def storage_listens(self, application: str, epoch: int) -> bool:
        """Return whether a test has started a storage JVM."""
        return self.storage.exists()

    def connect_storage(self, application: str, epoch: int, limit_s: float) -> socket.socket:
        """Connect to the storage JVM that a test has started."""
        return connected(self.storage, limit_s)

    def note_storage_use(self, application: str, epoch: int) -> None:
        """Note nothing: no test with this launcher asks."""

    def storage_unused_s(self, application: str, epoch: int) -> float:
        """Return that it was used just now."""
        return 0.0

    def forget_result(self, application: str, epoch: int) -> None:
        """Forget what it has found."""
        if (application, epoch) in self.probes:
            self.probes[application, epoch].result = ""

    # --- what a test says happens -----------------------------------------------------

    def answer(self, result: str, *, leaves: bool = True) -> Probe:
        """The newest probe that lives writes its result, and leaves with 0."""
        key = max((k for k, each in self.probes.items() if each.exit is None), key=lambda k: k[1])
        probe = self.probes[key]
        probe.result = result
        if leaves:
            probe.exit = _exit("0", "0")
        return replace(probe)


def _exit(python: str, jvm: str) -> ExitReport:
    at = datetime.now(UTC).isoformat()
    return ExitReport(python, jvm, core=False, oom=False, at=at, last_seq=0)
