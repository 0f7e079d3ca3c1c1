"""The state of a deploy for users and CI, and the stage of its next step."""

from enum import StrEnum

from queries.domain.states import Described


class DeployState(StrEnum):
    """The state of a deploy."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    ROLLED_BACK = "ROLLED_BACK"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: States of a finished deploy, whose receipt no longer changes.
ENDED = frozenset(
    {
        DeployState.SUCCEEDED,
        DeployState.ROLLED_BACK,
        DeployState.FAILED,
        DeployState.CANCELLED,
    }
)

#: Final states after which a deploy's snapshots are no longer needed and are pruned like any
#: others.
FREEING = frozenset({DeployState.SUCCEEDED, DeployState.ROLLED_BACK})


class DeployStage(Described):
    """What a deploy is doing; the values are part of the names of its fail-points."""

    PREFLIGHT = "preflight", "Preflight of the new definitions"
    SNAPSHOT = "snapshot", "Snapshots"
    WRITE = "write", "Write the definitions"
    RESTART = "restart", "Restart"
    JUDGE = "judge", "Wait until it succeeds"
    SETTLE = "settle", "Write the rest of the set"
    TRY_BACK = "try-back", "Preflight of the previous definitions"
    WRITE_BACK = "write-back", "Write the previous definitions"
    RESTART_BACK = "restart-back", "Restart on the previous definitions"
    JUDGE_BACK = "judge-back", "Wait until the previous definitions run"
    OVER = "over", "Ended"


#: Stages of one wave, in order.
OF_A_WAVE = (DeployStage.SNAPSHOT, DeployStage.WRITE, DeployStage.RESTART, DeployStage.JUDGE)
#: Stages of the rollback, in order.
ROLLBACK_STAGES = (
    DeployStage.TRY_BACK,
    DeployStage.WRITE_BACK,
    DeployStage.RESTART_BACK,
    DeployStage.JUDGE_BACK,
)


class ChangeState(StrEnum):
    """The state of one query or application in a deploy."""

    PENDING = "PENDING"  # its wave has not begun
    TRIED = "TRIED"  # its preflight is running, or has passed
    SAVED = "SAVED"  # a snapshot is being taken, or exists
    WRITTEN = "WRITTEN"  # its definition is saved as the newest; nothing runs on it yet
    RESTARTED = "RESTARTED"  # its restart has been requested, and it is being judged
    GOOD = "GOOD"
    BAD = "BAD"
    KEPT = "KEPT"  # the former definition cannot continue from its state
    GOING_BACK = "GOING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    LEFT = "LEFT"  # nothing was changed


#: States of changes that need nothing more on the way forward.
SETTLED = frozenset({ChangeState.GOOD, ChangeState.ROLLED_BACK, ChangeState.LEFT})
#: States of changes that dropped out of their deploy; if a wave has several, the first here is
#: shown.
OUT = (ChangeState.KEPT, ChangeState.BAD)
#: States in which its deploy decides what becomes of a query: it is judged or rolled back.
IN_DEPLOYS_HANDS = frozenset(
    {
        *(ChangeState.WRITTEN, ChangeState.RESTARTED),
        *(ChangeState.BAD, ChangeState.GOING_BACK),
    }
)


class ChangeKind(StrEnum):
    """The kind of object that changes."""

    QUERY = "Query"
    APPLICATION = "Application"


class OnFailure(StrEnum):
    """What a deploy does after a bad result."""

    ROLLBACK = "rollback"
    STOP = "stop"
