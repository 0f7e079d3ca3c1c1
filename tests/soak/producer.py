"""Writes the demo's flights into a topic, some of them stamped too late, and counts them."""

import json
import random
import threading
import time
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from examples.flights.feeder import hours

IN_HAND = 5000  # flights that the broker has not taken yet, at most
LATE_EVERY = 50
LATE_BY_S = (150, 900)  # far beyond the watermark's delay
FLUSHES_WITHIN_S = 120.0
_STEP_S = 0.02


class Feed:
    """Writes `rate` flights a second until it is stopped; waits while the broker is away."""

    def __init__(self, servers: str, topic: str, *, rate: float, seed: int) -> None:
        self.taken = 0  # by the broker
        self.stamped_late = 0
        self._topic = topic
        self._rate = rate
        self._random = random.Random(seed)
        self._failed: list[str] = []
        self._over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,  # in order and once, whatever is sent again
                "message.timeout.ms": 0,  # no limit: the broker comes back
                "queue.buffering.max.messages": IN_HAND,
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 2000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="feed")

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more, and wait until the broker has taken everything."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(FLUSHES_WITHIN_S)
        if left := self._producer.flush(FLUSHES_WITHIN_S):
            raise AssertionError(f"the broker has not taken {left} records")
        if self._failed:
            raise AssertionError(f"the broker refused {len(self._failed)}: {self._failed[0]}")

    def close(self) -> None:
        """End at once, whatever the broker has taken."""
        self._over.set()
        self._producer.purge()
        if self._thread.is_alive():
            self._thread.join(FLUSHES_WITHIN_S)

    def send(self, flight: dict[str, Any], at_ms: int) -> bool:
        """Hand a flight over, stamped with a time; wait while too many are in hand."""
        key = flight["tailnum"]
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    json.dumps(flight).encode(),
                    key=key and key.encode(),
                    timestamp=at_ms,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
                if self._over.is_set():
                    return False
            else:
                self._producer.poll(0)
                return True

    def _run(self) -> None:
        due = time.monotonic()
        flights = (flight for _, some in hours() for flight in some)
        for number, flight in enumerate(flights):
            due = max(due + 1 / self._rate, time.monotonic() - 1)
            ahead = due - time.monotonic()
            if (ahead > _STEP_S and self._over.wait(ahead)) or self._over.is_set():
                return
            at_ms = int(time.time() * 1000)
            if number % LATE_EVERY == LATE_EVERY - 1:
                at_ms -= self._random.randint(*LATE_BY_S) * 1000
                self.stamped_late += 1
            if not self.send(flight, at_ms):
                return

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.taken += 1
        else:
            self._failed.append(error.str())
