"""Replay a year of real flights into a Kafka topic.

    python -m examples.flights.kafka_feeder SERVERS [--rate 500]

The flights are the same as in the files of `feeder.py`, in the same order, but far faster: one
record per flight, with its tail number as the key and JSON as the value. After the last flight, the
year begins again, one year later. The timestamp of a record is the time at which it is sent.

The next hour is stored in `kafka-feeder.json` once the broker has accepted all records before it: a
restarted feeder continues there, and may send the flights of one second twice. If the broker is not
available, the feeder waits, with a limited number of flights in memory.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer

from examples.flights import topics
from examples.flights.feeder import Flight, hours, keep_next, next_hour, stopped_by_signals

RATE = 500.0  # flights a second: a year in eleven minutes
STATE = "kafka-feeder.json"
IN_HAND = 5000  # flights that the broker has not taken yet, at most
KEEP_EVERY_S = 1.0
#: A feeder that could not send for longer than this does not catch up.
_LATE_S = 1.0
_LEAVE_S = 4.0
_REPORT_EVERY_S = 30.0
_TRY_AGAIN_S = 1.0
_STEP_S = 0.02  # how long it may run ahead of its rate before it waits


def main(arguments: list[str] | None = None) -> int:
    """Send flights until SIGTERM or Ctrl-C; return the exit code."""
    options = _options(arguments)
    stopped = stopped_by_signals()
    options.directory.mkdir(parents=True, exist_ok=True)
    state = options.directory / STATE
    feeder = KafkaFeeder(options.servers, state, topic=options.topic, rate=options.rate)
    if options.topic != topics.FLIGHTS or _topics_are_there(options.servers, stopped):
        feeder.run(stopped)
    return 0


def _topics_are_there(servers: str, stopped: threading.Event) -> bool:
    """Create the demo's topics once the broker responds; return False if stopped first."""
    report = _Reporter()
    while not stopped.is_set():
        try:
            topics.create(servers, limit_s=5)
        except KafkaException as error:
            report(error.args[0])
            stopped.wait(_TRY_AGAIN_S)
        else:
            return True
    return False


class KafkaFeeder:
    """Sends flights to a topic, one after the other."""

    def __init__(
        self, servers: str, state: Path, *, topic: str = topics.FLIGHTS, rate: float = RATE
    ) -> None:
        self.state = state
        self.topic = topic
        self.rate = rate
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,  # in order and once, whatever is sent again
                "message.timeout.ms": 0,  # no limit: the broker comes back
                "queue.buffering.max.messages": IN_HAND,
                "linger.ms": 20,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",  # as Java's clients choose by key
                "reconnect.backoff.max.ms": 2000,
                "log_level": 0,  # it would report each refused connection
                "error_cb": _Reporter(),
            }
        )

    def run(self, stopped: threading.Event) -> None:
        """Send flights until `stopped` is set, which also ends a wait immediately."""
        clock = _Clock(self.rate)
        keep_at = time.monotonic() + KEEP_EVERY_S
        for hour, flight in self._flights():
            if not clock.wait(stopped) or not self._send(flight, stopped):
                break
            self.producer.poll(0)
            if time.monotonic() >= keep_at:
                self._keep(hour, stopped)
                keep_at = time.monotonic() + KEEP_EVERY_S
        self.producer.flush(_LEAVE_S)
        self.producer.purge()

    def _flights(self) -> Iterator[tuple[datetime, Flight]]:
        for hour, flights in hours(next_hour(self.state)):
            for flight in flights:
                yield hour, flight

    def _send(self, flight: Flight, stopped: threading.Event) -> bool:
        """Send a flight, waiting while too many are unsent; return False if stopped meanwhile."""
        key = flight["tailnum"]
        while not stopped.is_set():
            try:
                self.producer.produce(
                    self.topic, json.dumps(flight).encode(), key=key and key.encode()
                )
            except BufferError:
                self.producer.poll(0.1)
            else:
                return True
        return False

    def _keep(self, hour: datetime, stopped: threading.Event) -> None:
        """Store the hour once the broker has accepted all records before it."""
        while self.producer.flush(0.2) and not stopped.is_set():
            pass
        if not stopped.is_set():
            keep_next(self.state, hour)


class _Clock:
    """Limits the rate to a number per second, evenly spaced."""

    def __init__(self, rate: float) -> None:
        self.step = 1 / rate
        self.due = time.monotonic()

    def wait(self, stopped: threading.Event) -> bool:
        """Wait until the next flight is due; return False if `stopped` was set first."""
        now = time.monotonic()
        if now - self.due > _LATE_S:
            self.due = now
        self.due += self.step
        ahead = self.due - now
        if ahead > _STEP_S:
            return not stopped.wait(ahead)
        return not stopped.is_set()


class _Reporter:
    """Reports problems with the broker, at most every half minute."""

    def __init__(self) -> None:
        self.quiet_until = 0.0

    def __call__(self, error: KafkaError) -> None:
        if time.monotonic() >= self.quiet_until:
            self.quiet_until = time.monotonic() + _REPORT_EVERY_S
            sys.stderr.write(f"{error.str()}; waiting for the broker\n")
            sys.stderr.flush()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    home = Path(os.environ.get("HEADGATE_HOME") or Path(__file__).resolve().parents[2] / "var")
    parser = argparse.ArgumentParser(description="Replay a year of real flights into Kafka.")
    parser.add_argument("servers", help="the broker's address, for example 127.0.0.1:9092")
    parser.add_argument("--rate", type=_rate, default=RATE, help="flights per second")
    parser.add_argument("--topic", default=topics.FLIGHTS)
    parser.add_argument("--directory", type=Path, default=home / "demo" / "flights")
    return parser.parse_args(arguments)


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate <= 1_000_000:
        raise argparse.ArgumentTypeError("use a number above 0, and at most a million")
    return rate


if __name__ == "__main__":
    sys.exit(main())
