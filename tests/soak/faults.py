"""What is done to the system: kills, freezes and outages, drawn from a seed."""

import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

FROZEN_S = (5.0, 20.0)
#: Longer than a write may wait, than hosts are trusted in silence, and than a program may hold the
#: database's lock without progress.
LONG_FROZEN_S = (60.0, 200.0)
#: Seconds to catch a program within a write; it is frozen anywhere if that does not succeed.
CAUGHT_WITHIN_S = 20.0
_LOOK_EVERY_S = 0.002  # a write takes some milliseconds
AWAY_S = (5.0, 20.0)  # how long a killed server stays away

#: Parts of an application's driver, and its standby driver, whose Python is meant.
STANDBY = "standby"
DRIVER_PARTS = ("python", "jvm", "shim", STANDBY)
PROGRAMS = ("worker", "ingester", "web", "valkey", "supervisord")
LONG_FREEZE = "freeze within a write"
BROKER = "broker"
STORE = "store"  # the S3 gateway, where the checkpoints are on it
#: What can be drawn. Each is done once before one is done again.
KINDS = (
    *(("kill", part) for part in ("python", "jvm", "shim", *PROGRAMS, BROKER)),
    *(("freeze", part) for part in ("python", "jvm", "ingester", "worker", "valkey", BROKER)),
    *((LONG_FREEZE, part) for part in ("ingester", "worker")),
)
KINDS_ON_S3 = (*KINDS, ("kill", STORE), ("freeze", STORE))
KINDS_OF_STANDBYS = (("kill", STANDBY), ("freeze", STANDBY))


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is done to one process."""

    at_s: float  # after the first minute begins
    act: str  # kill, freeze, or LONG_FREEZE
    part: str
    application: str  # whose driver; "" for what is no driver's
    seconds: float  # frozen or away
    until_s: float = 0.0  # what follows is watched until then

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

    The second half is for what follows. A long freeze takes the time of several faults, and leaves
    one for what follows. The same seed draws the same faults.
    """
    chance = random.Random(seed)
    deck: list[tuple[str, str]] = []
    faults = []
    number, slots = 0, int(minutes * 60 / every_s)
    while number < slots:
        if not deck:
            deck = chance.sample(kinds, len(kinds))
        act, part = deck.pop()
        seconds, takes = 0.0, 1
        if act == "freeze":
            seconds = chance.uniform(*FROZEN_S)
        elif act == LONG_FREEZE:
            seconds = chance.uniform(*LONG_FROZEN_S)
            takes = 2 + int((seconds + CAUGHT_WITHIN_S) / every_s)
            if number + takes > slots:  # there is no time for it any more
                act, seconds, takes = "freeze", chance.uniform(*FROZEN_S), 1
        elif part in (BROKER, STORE):
            seconds = chance.uniform(*AWAY_S)
        faults.append(
            Fault(
                at_s=(number + chance.random() / 2) * every_s,
                act=act,
                part=part,
                application=chance.choice(applications) if part in DRIVER_PARTS else "",
                seconds=seconds,
                until_s=(number + takes) * every_s,
            )
        )
        number += takes
    return faults


def do(
    fault: Fault,
    process: psutil.Process,
    *,
    over: threading.Event,
    again: Callable[[], None] | None,
    writes: Callable[[], bool] = lambda: True,
) -> None:
    """Do it to the process; a freeze or an outage ends within this call, also when `over` is set.

    `again` starts what does not come back by itself; `writes` returns whether the process is within
    a write, which is where a long freeze catches it.
    """
    if fault.act in ("freeze", LONG_FREEZE):
        deadline = time.monotonic() + CAUGHT_WITHIN_S
        process.send_signal(signal.SIGSTOP)
        while fault.act == LONG_FREEZE and not writes() and time.monotonic() < deadline:
            process.send_signal(signal.SIGCONT)
            over.wait(_LOOK_EVERY_S)
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
