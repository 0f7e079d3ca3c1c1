"""Soak the whole system on Kafka: faults for an hour, then every sink against a batch.

    make soak-demo ARGS="--minutes 60 --every 60 --seed 7 --standbys"

Flights are written to a topic and read by four queries; every minute one process is killed or
frozen, or the broker goes away. Afterwards what the sinks hold is compared with a batch
computation over the same records. The seed is printed: it draws the same faults. Where a
comparison fails, data and logs are kept and the exit code is 1. The last line is JSON.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks._measuring import machine
from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.soak import compare, definitions, faults, tables
from tests.soak.evidence import Evidence
from tests.soak.truth import judge
from tests.soak.world import Followed, World

Figures = dict[str, Any]

#: For machines of two cores, where drivers start all the time: less work for the compiler of Java.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> int:
    """Soak, or judge an earlier soak again; return 0 where everything is as it should be."""
    options = _options()
    missing = [
        pieces.missing_kafka(),
        pieces.missing_s3() if options.s3 else "",
        tables.missing(options.table) if options.table else "",
    ]
    if reason := next(filter(None, missing), ""):
        say(reason)
        return 1
    if options.judge is not None:
        return _judge_again(options.judge)
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)  # of drivers and broker
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    folder = Path(tempfile.mkdtemp(prefix="headgate-soak-"))
    again = f"--minutes {options.minutes:g} --every {options.every:g} --seed {options.seed}"
    again += (
        " --s3" * options.s3
        + " --standbys" * options.standbys
        + (f" --table {options.table}" if options.table else "")
    )
    say(f"make soak-demo ARGS='{again}' draws the same faults. Data and logs: {folder}")
    world = World(
        folder,
        rate=options.rate,
        seed=options.seed,
        over=over,
        on_s3=options.s3,
        table=options.table,
        standbys=options.standbys,
    )
    told: Figures = {"name": "soak-demo", "holds": False}
    try:
        told = _soak(world, options)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        world.close()
        if told["holds"] and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            say(f"data and logs are kept: {folder}")
    return _end(told)


def _judge_again(folder: Path) -> int:
    found = Evidence.kept(folder)
    broker = KafkaBroker(folder / "kafka")
    try:
        broker.start()
        results, figures = judge(folder, broker.servers, found)
    finally:
        broker.stop()
    return _end(_report(results, figures))


def _end(told: Figures) -> int:
    """Print the line of JSON, the last one; return the exit code."""
    say(json.dumps({**told, "machine": machine()}))
    return 0 if told["holds"] else 1


def _soak(world: World, options: argparse.Namespace) -> Figures:
    """Start, break, compare; return the figures."""
    plan = faults.draw(
        options.seed,
        minutes=options.minutes,
        every_s=options.every,
        applications=sorted((definitions.EACH, definitions.WITH_STATE)),
        kinds=(
            *(faults.KINDS_ON_S3 if options.s3 else faults.KINDS),
            *(faults.KINDS_OF_STANDBYS if options.standbys else ()),
        ),
    )
    world.start()
    say(f"{time.strftime('%H:%M:%S', time.gmtime())} all queries run; {len(plan)} faults follow")
    followed = _break(world, plan, options)
    say("no more faults; waiting until everything is read")
    world.drain()
    takeovers = world.takeovers()
    found = world.evidence(followed)
    found.keep(world.folder)
    say("stopped; a batch over the same records\n")
    results, figures = judge(world.folder, world.broker.servers, found)
    met = [one for one in followed if not one.absent]
    for one, recovered_s in zip(met, figures["recovery s"], strict=True):
        one.recovered_s = recovered_s
    for number, one in enumerate(followed):
        say(_line(number + 1, one))
    absent = [str(one.fault) for one in followed if one.absent]
    return _report(
        results | {"faults": compare.met(len(followed), absent)},
        {
            "seed": options.seed,
            "minutes": options.minutes,
            "checkpoints": "s3" if options.s3 else "local",
            "sinks": options.table or "files",
            "standbys": "own" if options.standbys else "none",
            "taken over": takeovers,
            "faults": dict(Counter(f"{one.fault.act} {one.fault.part}" for one in followed)),
            "not there": len(absent),
            "held": [line for one in followed for line in one.held],
            **figures,
        },
    )


def _break(world: World, plan: list[faults.Fault], options: argparse.Namespace) -> list[Followed]:
    began = time.monotonic()
    done = []
    for number, fault in enumerate(plan):
        _pause(world, began + fault.at_s)
        one = world.suffer(fault, until=began + fault.until_s)
        done.append(one)
        say(_line(number + 1, one))
    _pause(world, began + options.minutes * 60)
    return done


def _pause(world: World, until: float) -> None:
    if world.over.wait(max(0.0, until - time.monotonic())):
        raise KeyboardInterrupt


def _report(results: dict[str, compare.Result], figures: Figures) -> Figures:
    """Print each comparison; return all figures, and whether all comparisons hold."""
    say("")
    for name, result in results.items():
        say(f"{name}: {json.dumps(result.told())}")
    return {
        "name": "soak-demo",
        "holds": all(result.holds for result in results.values()),
        **figures,
        "compared": {name: result.told(examples=0) for name, result in results.items()},
    }


def _line(number: int, one: Followed) -> str:
    said = [f"{number:3} {one.at:%H:%M:%S} {one.fault} ({one.happened})"]
    if not one.absent:
        took = one.recovered_s
        said.append("not recovered yet" if took is None else f"recovered in {took:.0f} s")
    if one.new_runs:
        said.append(f"started again: {', '.join(one.new_runs)}")
    return "; ".join([*said, *(f"HELD {held}" for held in one.held)])


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="make soak-demo", description=__doc__)
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--every", type=float, default=60, help="seconds between faults")
    options.add_argument("--seed", type=int, default=secrets.randbelow(2**20))
    options.add_argument("--rate", type=float, default=80, help="flights per second")
    options.add_argument("--s3", action="store_true", help="checkpoints on an S3 gateway")
    options.add_argument("--standbys", action="store_true", help="applications have standbys")
    formats = sorted(tables.SPARKS)
    options.add_argument("--table", choices=formats, default="", help="write tables, not files")
    options.add_argument("--keep", action="store_true", help="keep data and logs in any case")
    options.add_argument("--judge", type=Path, help="compare again what a soak kept in this folder")
    return options.parse_args()


if __name__ == "__main__":
    sys.exit(main())
