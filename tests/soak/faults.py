"""What is done to the system: kills, freezes and outages, drawn from a seed."""

import random
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

FROZEN_S = (5.0, 20.0)
AWAY_S = (5.0, 20.0)  # how long a killed server stays away

#: Parts of an application's driver, and its standby driver, whose Python is meant.
STANDBY = "standby"
DRIVER_PARTS = ("python", "jvm", "shim", STANDBY)
PROGRAMS = ("worker", "ingester", "beat", "web", "valkey", "supervisord")
BROKER = "broker"
STORE = "store"  # the S3 gateway, where the checkpoints are on it
#: What can be drawn. Each is done once before one is done again.
KINDS = (
    *(("kill", part) for part in ("python", "jvm", "shim", *PROGRAMS, BROKER)),
    *(("freeze", part) for part in ("python", "jvm", "ingester", "worker", "valkey", BROKER)),
)
KINDS_ON_S3 = (*KINDS, ("kill", STORE), ("freeze", STORE))
KINDS_OF_STANDBYS = (("kill", STANDBY), ("freeze", STANDBY))


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is done to one process."""

    at_s: float  # after the first minute begins
    act: str  # kill or freeze
    part: str
    application: str  # whose driver; "" for what is no driver's
    seconds: float  # frozen or away

    def __str__(self) -> str:
        whose = f" of {self.application}" if self.application else ""
        lasts = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.act} {self.part}{whose}{lasts}"


def draw(
    seed: int,
    *,
    minutes: float,
    every_s: float,
    applications: Sequence[str],
    kinds: Sequence[tuple[str, str]] = KINDS,
) -> list[Fault]:
    """Return one fault for each `every_s` of the time, each at a random moment of its first half.

    The second half is for what follows. The same seed draws the same faults.
    """
    chance = random.Random(seed)
    deck: list[tuple[str, str]] = []
    faults = []
    for number in range(int(minutes * 60 / every_s)):
        if not deck:
            deck = chance.sample(kinds, len(kinds))
        act, part = deck.pop()
        seconds = 0.0
        if act == "freeze":
            seconds = chance.uniform(*FROZEN_S)
        elif part in (BROKER, STORE):
            seconds = chance.uniform(*AWAY_S)
        faults.append(
            Fault(
                at_s=(number + chance.random() / 2) * every_s,
                act=act,
                part=part,
                application=chance.choice(applications) if part in DRIVER_PARTS else "",
                seconds=seconds,
            )
        )
    return faults


def do(
    fault: Fault,
    process: psutil.Process,
    *,
    over: threading.Event,
    again: Callable[[], None] | None,
) -> None:
    """Do it to the process; a freeze or an outage ends within this call, also when `over` is set.

    `again` starts what does not come back by itself.
    """
    if fault.act == "freeze":
        process.send_signal(signal.SIGSTOP)
        try:
            over.wait(fault.seconds)
        finally:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        return
    process.kill()
    if again is not None:
        over.wait(fault.seconds)
        again()
