"""Soak the whole system on Kafka: faults for an hour, then every sink against a batch.

    make soak-demo ARGS="--minutes 60 --every 60 --seed 7"

Flights are written to a topic and read by four queries; every minute one process is killed or
frozen, or the broker goes away. Afterwards what the sinks hold is compared with a batch
computation over the same records. The seed is printed: it draws the same faults. Where a
comparison fails, data and logs are kept and the exit code is 1. The last line is JSON.
"""

import argparse
import json
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
from tests.soak import compare, definitions, faults
from tests.soak.checkpoint import Batches
from tests.soak.truth import Evidence, Truth
from tests.soak.world import Followed, World


def main() -> int:
    """Soak; return 0 where everything compared is as it should be."""
    options = _options()
    if reason := pieces.missing_kafka():
        say(reason)
        return 1
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    folder = Path(tempfile.mkdtemp(prefix="headgate-soak-"))
    again = f"--minutes {options.minutes:g} --every {options.every:g} --seed {options.seed}"
    say(f"make soak-demo ARGS='{again}' draws the same faults. Data and logs: {folder}")
    world = World(folder, rate=options.rate, seed=options.seed, over=over)
    holds = False
    try:
        figures = _soak(world, options)
        holds = bool(figures["holds"])
        say(json.dumps(figures))
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        world.close()
        if holds and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            say(f"data and logs are kept: {folder}")
    return 0 if holds else 1


def _soak(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Start, break, compare; return the figures."""
    plan = faults.draw(
        options.seed,
        minutes=options.minutes,
        every_s=options.every,
        applications=sorted(definitions.applications()),
    )
    world.start()
    say(f"{time.strftime('%H:%M:%S', time.gmtime())} all queries run; {len(plan)} faults follow")
    followed = _break(world, plan, options)
    say("no more faults; waiting until everything is read")
    world.drain()
    return _compare(world, followed, options)


def _break(world: World, plan: list[faults.Fault], options: argparse.Namespace) -> list[Followed]:
    began = time.monotonic()
    done = []
    for number, fault in enumerate(plan):
        _pause(world, began + fault.at_s)
        until = began + (number + 1) * options.every
        one = world.suffer(fault, until=until)
        done.append(one)
        say(_line(number + 1, one))
    _pause(world, began + options.minutes * 60)
    return done


def _pause(world: World, until: float) -> None:
    if world.over.wait(max(0.0, until - time.monotonic())):
        raise KeyboardInterrupt


def _compare(world: World, followed: list[Followed], options: argparse.Namespace) -> dict[str, Any]:
    system, feed = world.system, world.feed
    assert feed is not None
    ledger = world.ledger(definitions.BY_MINUTE)
    told = set(system.batches(definitions.BY_MINUTE))
    body = system.query(definitions.BY_MINUTE)
    known = {}
    for query in world.queries:
        system.verb(query.name, "stop")
        world.wait_stopped(query.name)
        batches = Batches(world.checkpoint(query.name), definitions.FLIGHTS)
        known[query.name] = Evidence(batches, batches.replayed(world.starts(query.name)))
    runs = {query.name: len(world.starts(query.name)) for query in world.queries}
    system.close()
    truth = Truth(world.folder, world.broker.servers, world.queries)
    try:
        windows, late = truth.windows(
            world.out, known[definitions.BY_MINUTE], closing_ms=world.closing_ms
        )
        results = {
            definitions.TO_FILES: truth.files(world.out),
            definitions.TO_KAFKA: truth.topic(known[definitions.TO_KAFKA]),
            definitions.BY_MINUTE: windows,
            definitions.BY_PLANE: truth.planes(),
            "late rows": compare.late(
                truth.dropped(known[definitions.BY_MINUTE]),
                told=told,
                ledger=ledger,
                missing_batches=body["dropped_events"]["missing_batches"],
            ),
            "records": compare.rows(range(feed.taken), range(truth.records)),
        }
    finally:
        truth.close()
    results["late rows"].counted["late records"] = late
    return _told(followed, results, known, runs, world, options)


def _told(
    followed: list[Followed],
    results: dict[str, compare.Result],
    known: dict[str, Evidence],
    runs: dict[str, int],
    world: World,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Print the table of faults and the comparisons; return the figures."""
    say("")
    for number, one in enumerate(followed):
        say(_line(number + 1, one))
    say("")
    for name, result in results.items():
        say(f"{name}: {json.dumps(result.told())}")
    assert world.feed is not None
    return {
        "name": "soak-demo",
        "holds": all(result.holds for result in results.values()),
        "seed": options.seed,
        "minutes": options.minutes,
        "faults": dict(Counter(f"{one.fault.act} {one.fault.part}" for one in followed)),
        "not there": sum(one.happened.startswith("it was") for one in followed),
        "not recovered before the next": sum(one.recovered_s is None for one in followed),
        "longest recovery s": max((round(one.recovered_s or 0) for one in followed), default=0),
        "held": [line for one in followed for line in one.held],
        "records": world.feed.taken,
        "stamped late": world.feed.stamped_late,
        "runs": runs,
        "batches": {name: len(one.batches.numbers) for name, one in known.items()},
        "replayed batches": {name: len(one.replayed) for name, one in known.items()},
        "compared": {name: result.told(examples=0) for name, result in results.items()},
        "machine": machine(),
    }


def _line(number: int, one: Followed) -> str:
    back = "not recovered in its time" if one.recovered_s is None else f"{one.recovered_s:.0f} s"
    again = f"; started again: {', '.join(one.new_runs)}" if one.new_runs else ""
    held = f"; HELD: {'; '.join(one.held)}" if one.held else ""
    return f"{number:3} {one.at} {one.fault} ({one.happened}): {back}{again}{held}"


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
    options.add_argument("--keep", action="store_true", help="keep data and logs in any case")
    return options.parse_args()


if __name__ == "__main__":
    sys.exit(main())
