"""The states of a planned run, and the reasons for skipping one."""

from enum import StrEnum


class PlannedState(StrEnum):
    """What became of a planned time."""

    WAITING = "WAITING"  # queued until the run before it has ended
    STARTED = "STARTED"
    DONE = "DONE"  # read everything that was available
    FAILED = "FAILED"  # the start was refused, or the run failed for good
    STOPPED = "STOPPED"  # by a user, or at its limit of duration
    SKIPPED = "SKIPPED"


#: Planned runs that have not ended.
OPEN_STATES = frozenset({PlannedState.WAITING, PlannedState.STARTED})


class SkipReason(StrEnum):
    """Why a planned time gave no run."""

    OVERLAP = "overlap"  # the run before it had not ended
    MISSED = "missed"  # nobody looked in time
    PAUSED = "paused"
    HELD = "held"  # its subject is FAILED or BROKEN: an operator must look first
    HOST = "host"  # the host of its subject is not responding
    DUPLICATE = "duplicate"  # another planned run already waits, or begins now
    REMOVED = "removed"  # the schedule, or its query, was removed before the time was handled


#: One sentence for each reason for a skip.
SKIPPED_WORDS = {
    SkipReason.OVERLAP: "The run before it had not ended.",
    SkipReason.MISSED: "Nothing looked at the schedule in time.",
    SkipReason.PAUSED: "The schedule was paused.",
    SkipReason.HELD: "The query is FAILED or BROKEN; an operator must look at it first.",
    SkipReason.HOST: "The query's host was not responding.",
    SkipReason.DUPLICATE: "Another planned run covers it.",
    SkipReason.REMOVED: "The schedule was removed before it started.",
}
