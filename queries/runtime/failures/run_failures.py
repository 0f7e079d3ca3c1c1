"""Describe why a run failed, or why it is not allowed to start, as reported in its status."""

import re
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from listeners.spark.telemetry import Telemetry
from queries.domain.failures.error_text import bounded, left_out
from queries.domain.protocol import Hangs, RunError, RunStatus
from queries.runtime.failures.error_capture import (
    MESSAGE_LIMIT,
    Mask,
    from_java,
    refusal,
    users_frame,
)

#: Spark's errors if another process has written an entry of the checkpoint's logs.
_CONFLICT = re.compile(
    r"CONCURRENT_STREAM_LOG_UPDATE|_LEGACY_ERROR_TEMP_2207"
    r"|Multiple streaming queries are concurrently using"
)
#: The failure's category depends on the first words (`queries.domain.failures.state_rules`).
_BY_EARLIER_OWNER = (
    "The log entry has been written by another driver: this run had not committed a batch yet, so "
    "the checkpoint's previous owner may not have halted."
)
TERMINATED_WAIT_S = 2  # seconds to wait for the event that may contain the error class


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why a run failed, and the details that its status reports in addition to the error."""

    error: RunError
    changes: dict[str, Any] = field(default_factory=dict)


#: Reads a run's current failure; None: it has not failed.
Read = Callable[[], RunFailure | None]


def none() -> RunFailure | None:
    """Return the value for a run that has not failed."""
    return None


def start_timed_out(thread: threading.Thread, problem: str, busy: str, mask: Mask) -> RunError:
    """Return the failure of an abandoned start, with its thread's place in users' code.

    `problem` is what is wrong with the query's start; `busy` is a sentence about the host, or "".
    """
    frame = sys._current_frames().get(thread.ident or 0)
    frames = traceback.extract_stack(frame) if frame is not None else []
    users_location = users_frame(frames)
    text = f"The query {problem}"
    text += f"; its code is at {users_location}." if users_location else "."
    text = f"{text} {busy}".strip()
    stack = "".join(traceback.format_list(frames))
    return RunError("", "StartTimedOut", text, mask(f"{text}\n\n{stack}").strip())


def checkpoint_refused(error: RunError, holder: RunStatus | None, checkpoint: str) -> RunError:
    """Return why a checkpoint is not available, with details of the run in this driver holding it.

    `holder` is that run's status, None if the run is not one of this driver's.
    """
    if holder is None or holder.hangs is Hangs.NOTHING:
        return error
    does = "was stopped, but its thread in this driver does not end"
    if holder.hangs is Hangs.START:
        does = "is still being built by a thread of this driver that does not end"
    text = (
        f"An earlier run {does} and holds the checkpoint {checkpoint}. Only a new driver can "
        "free it."
    )
    return refusal(error.refused, text, error.holder_pid)


def of_query(throwable: Any, run_id: str, telemetry: Telemetry, mask: Mask) -> RunError:
    """Return a query's failure; its error class may appear only in Spark's Terminated event."""
    error = from_java(throwable, mask)
    if error.error_class in ("", "STREAM_FAILED"):
        body = left_out(lambda: telemetry.terminated(run_id, TERMINATED_WAIT_S), None) or {}
        error_class = body.get("errorClassOnException") or error.error_class
        return replace(error, error_class=error_class)
    return error


def of_takeover(error: RunError) -> RunError:
    """Return a failure of a fenced run before its first commit, with the reason for a conflict.

    The previous owner of a checkpoint that is not local commits batches until its watch has found
    the new owner. Spark reports only that the entry exists, as for a process without a fence.
    """
    stranger = "exists already" in error.root_cause  # queries/jvm/CheckpointFiles.java knows
    if stranger or not _CONFLICT.search(f"{error.error_class}\n{error.message}"):
        return error
    message = f"{_BY_EARLIER_OWNER}\n{error.message}"
    return replace(error, message=bounded(message, MESSAGE_LIMIT))
