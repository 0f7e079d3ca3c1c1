"""The counts of a scheduler since they were last read, as plain sums that can be added up."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """One task's sums over a period; they are transferred in the order of the fields."""

    calls: float = 0  # attempts that ended, successful or not
    retries: float = 0  # attempts after the first
    errors: float = 0  # failed attempts: transient errors, timeouts, and final errors
    timeouts: float = 0  # of these, timeouts
    dead_letters: float = 0  # rows given up
    busy_ms: float = 0  # time that calls were in flight, added over all calls
    wall_ms: float = 0  # elapsed time
    cpu_ms: float = 0  # CPU time of this Python worker, over all its threads
    allowed: float = 0  # the limit, summed over calls
    held_by_limit: float = 0  # calls that ended while another row was ready
    held_by_keys: float = 0  # … while every held row waited for a call with its own key
    held_by_source: float = 0  # … while there was no other row
    held_by_pace: float = 0  # calls that had to wait for the limit of calls per second
    keys: float = 0  # distinct keys held, summed over calls
    tasks: float = 0  # tasks that started
    opened: float = 0  # clients opened

    def as_list(self) -> list[float]:
        """Return the sums in the order of the fields."""
        return [float(getattr(self, field.name)) for field in fields(self)]


NAMES = tuple(one.name for one in fields(Counts))
