"""Where a deploy is: its state for people and CI, and the stage that its next step belongs to."""

from enum import StrEnum

from queries.domain.states import Described


class DeployState(StrEnum):
    """How a deploy stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    ROLLED_BACK = "ROLLED_BACK"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: States of a deploy that has ended; its receipt changes no more.
ENDED = frozenset(
    {
        DeployState.SUCCEEDED,
        DeployState.ROLLED_BACK,
        DeployState.FAILED,
        DeployState.CANCELLED,
    }
)

#: Ends after which nobody needs a deploy's snapshots: pruning takes them like any others.
FREEING = frozenset({DeployState.SUCCEEDED, DeployState.ROLLED_BACK})


class Stage(Described):
    """What a deploy is doing; the value is part of the names of its fail-points."""

    PREFLIGHT = "preflight", "Preflight of the new definitions"
    SNAPSHOT = "snapshot", "Snapshots"
    WRITE = "write", "Write the definitions"
    RESTART = "restart", "Restart"
    JUDGE = "judge", "Wait until it is good"
    SETTLE = "settle", "Write the rest of the set"
    TRY_BACK = "try-back", "Preflight of the former definitions"
    WRITE_BACK = "write-back", "Write the former definitions"
    RESTART_BACK = "restart-back", "Restart on the former definitions"
    JUDGE_BACK = "judge-back", "Wait until the former definitions run"
    OVER = "over", "Ended"


#: Stages of one wave, in order.
OF_A_WAVE = (Stage.SNAPSHOT, Stage.WRITE, Stage.RESTART, Stage.JUDGE)
#: Stages of the way back, in order.
BACK = (Stage.TRY_BACK, Stage.WRITE_BACK, Stage.RESTART_BACK, Stage.JUDGE_BACK)


class ChangeState(StrEnum):
    """How one query or application of a deploy stands."""

    PENDING = "PENDING"  # its wave has not begun
    TRIED = "TRIED"  # its preflight is under way, or has passed
    SAVED = "SAVED"  # a snapshot is being taken, or is there
    WRITTEN = "WRITTEN"  # its definition is the newest; nothing runs on it yet
    RESTARTED = "RESTARTED"  # it was asked to run on it, and is being judged
    GOOD = "GOOD"
    BAD = "BAD"
    KEPT = "KEPT"  # the former definition cannot go on from its state
    GOING_BACK = "GOING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    LEFT = "LEFT"  # nothing was done to it


#: States of what is done with, as far as the way forward goes.
SETTLED = frozenset({ChangeState.GOOD, ChangeState.ROLLED_BACK, ChangeState.LEFT})
#: States of what is out of its deploy; of several in a wave the first here is shown.
OUT = (ChangeState.KEPT, ChangeState.BAD)


class ChangeKind(StrEnum):
    """What a change is of."""

    QUERY = "Query"
    APPLICATION = "Application"


class OnFailure(StrEnum):
    """What a deploy does when something is not good."""

    ROLLBACK = "rollback"
    STOP = "stop"
