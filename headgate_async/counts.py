"""What a scheduler counted since it was last asked: plain sums, so that sums of them add up."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """Sums over a stretch of one task's time. They travel in the order of the fields."""

    calls: float = 0  # tries that ended, well or not
    retries: float = 0  # tries after the first
    errors: float = 0  # tries that failed: transient ones, time-outs, and final ones
    timeouts: float = 0  # of these, by time-out
    dead_letters: float = 0  # rows given up
    busy_ms: float = 0  # time that calls were in flight, each call's added
    wall_ms: float = 0  # time that passed
    cpu_ms: float = 0  # CPU time of this Python worker, all its threads
    allowed: float = 0  # what the limit was, summed over calls
    held_by_limit: float = 0  # calls that ended while another row was ready
    held_by_keys: float = 0  # … while every row held waited for a call of its own key
    held_by_source: float = 0  # … while no further row was there
    held_by_pace: float = 0  # calls that had to wait for the limit on calls a second
    keys: float = 0  # distinct keys held, summed over calls
    tasks: float = 0  # tasks that began
    opened: float = 0  # clients opened

    def as_list(self) -> list[float]:
        """Return the sums in the order of the fields."""
        return [float(getattr(self, one.name)) for one in fields(self)]


NAMES = tuple(one.name for one in fields(Counts))
