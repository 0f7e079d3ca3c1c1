"""How busy a host's processors are: on a busy host, everything that is healthy is slow."""

from dataclasses import dataclass

from headgate_ground.tolerant.values import whole

#: Percent of a minute in which some program waited for a processor. A driver that starts on two
#: quiet cores reaches about 25.
HIGH_SHARE = 80.0
#: Load per processor, for kernels that do not measure the share: three programs for each.
HIGH_LOAD = 3.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a host's kernel measured during the last minute."""

    share: float | None  # percent of the time in which a program waited; None: not measured
    load: float  # programs that ran or waited, on average
    cores: int

    @property
    def is_high(self) -> bool:
        """Return whether nothing should be started that can wait."""
        if self.share is not None:
            return self.share >= HIGH_SHARE
        return self.load >= HIGH_LOAD * self.cores

    @property
    def figure(self) -> str:
        """Return the evidence: "load 90 on 2 cores, a program waited 99 % of the last minute"."""
        load = f"load {self.load:.0f} on {self.cores} core{'s' if self.cores != 1 else ''}"
        if self.share is None:
            return load
        return f"{load}, a program waited for a processor {self.share:.0f} % of the last minute"


def waiting_share(text: str) -> float | None:
    """Return the minute's share in `/proc/pressure/cpu`; None if the text does not contain it."""
    for line in text.splitlines():
        kind, *fields = line.split()[:4] or [""]
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        units, _, hundredths = values.get("avg60", "").partition(".")
        share = whole(units + hundredths) if len(hundredths) == 2 else None
        if kind == "some" and share is not None:
            return share / 100
    return None
