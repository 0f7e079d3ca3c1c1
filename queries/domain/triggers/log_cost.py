"""What the log entries of a checkpoint on a storage cost each batch, and what would help.

Spark's `walCommit` and `commitOffsets` are the times of the two entries of a batch.
"""

from dataclasses import dataclass

from queries.domain.triggers.interval_model import ROUND_MS, interval_text, words

#: The setting for the class that writes log entries, and our class for it.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
OUR_FILES = "headgate.CheckpointFiles"
#: Measured by `make bench log_entries` (docs/storage.md).
_ONCE = (
    "Headgate's file manager writes each log entry on S3 once, without a rename. In a benchmark "
    "(log_entries, on a loopback gateway, not with this query), it needed a quarter to a fifth of "
    "the time of Spark's default."
)
#: The note is shown if the entries take more than this share of the time.
SHARE_AT_MOST = 0.05


@dataclass(frozen=True, slots=True)
class LogFiles:
    """How the newest run writes the log entries of a checkpoint that is not local."""

    on_s3: bool
    manager: str  # the class that its author has chosen, "" if none
    fenced: bool  # False: its store, its Hadoop or its driver lacks what our class needs


def log_cost(files: LogFiles, logs_ms: float, trigger_ms: float, interval_ms: float) -> str:
    """Return what the entries of a batch cost a query and what would help; "" if that is little.

    `logs_ms` and `trigger_ms` are the averages of its batches.
    """
    share = logs_ms / max(interval_ms, trigger_ms)
    if share <= SHARE_AT_MOST:
        return ""
    cost = f"The log entries of a batch take {words(logs_ms)}, {share:.0%} of the time."
    if files.on_s3 and files.manager not in ("", OUR_FILES):
        return f"{cost} {FILE_MANAGER} is {files.manager}. {_ONCE} To use it, remove the setting."
    if files.on_s3 and not files.fenced:
        return (
            f"{cost} The run is not fenced, so Spark's file manager may write them. {_ONCE} What "
            "it needs is in the run's warning."
        )
    fit = next((round_ms for round_ms in ROUND_MS if logs_ms / round_ms <= SHARE_AT_MOST), None)
    if fit is None:
        return cost
    return (
        f"{cost} With an interval of {interval_text(fit)} it would be {logs_ms / fit:.0%}, and a "
        "row would wait longer."
    )
