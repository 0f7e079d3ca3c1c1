"""Write a shim's report on its driver's exit: exit codes, and the log's end without secrets."""

import contextlib
import json
import sys
import time
from dataclasses import replace

from headgate_ground.files import NotPlain, read_file, read_tail, replace_file
from headgate_ground.tolerant.values import whole
from queries.domain.probes.questions import TASK
from queries.domain.protocol import (
    ASSIGNMENT,
    DRIVER_LOG,
    EXIT,
    KILL_REASON,
    LAST_SEQ,
    SPEC,
    DriverSpec,
    ExitReport,
    Killer,
)
from queries.driver_folder import DriverFolder
from queries.secret_references import References

LOG_TAIL_BYTES = 16_384
REPORT_WITHIN_S = 60  # for exit.json to become writable: a full disk, a missing folder
REPORT_AGAIN_S = 1
_LONGEST_NUMBER = 18  # digits of last_seq: no database accepts a larger number
_LONGEST_REASON = 100  # characters
_JVM_OOM_EXIT = "3"  # of -XX:+ExitOnOutOfMemoryError


def build(
    folder: DriverFolder,
    spec: DriverSpec,
    *,
    python: str,
    jvm: str,
    core: bool,
    oom_killed: bool,
    killed: Killer,
    kill_reason: str,
    at: str,
) -> ExitReport:
    """Return the report; `oom_killed`: the kernel killed the driver because memory ran out."""
    # Twice as much is masked, because the cut may be in the middle of a secret.
    log = read_tail(folder.own / DRIVER_LOG, 2 * LOG_TAIL_BYTES, within=folder.root)
    return ExitReport(
        python=python,
        jvm=jvm,
        core=core,
        oom=oom_killed or (jvm == _JVM_OOM_EXIT and "OutOfMemoryError" in log),
        at=at,
        last_seq=_last_seq(folder),
        log_tail=_masked(folder, spec, log)[-LOG_TAIL_BYTES:],
        killed=killed,
        kill_reason=kill_reason,
    )


def kill_reason(folder: DriverFolder) -> str:
    """Return why a worker was about to kill the driver; "" if none said that it was."""
    with contextlib.suppress(OSError, NotPlain):
        return (read_file(folder.control / KILL_REASON, most=_LONGEST_REASON) or "").strip()
    return ""


def warm_up(folder: DriverFolder, spec: DriverSpec) -> None:
    """Prepare the masking of a log (imports, patterns), usually while the JVM is still ending."""
    _masked(folder, spec, read_tail(folder.own / DRIVER_LOG, LOG_TAIL_BYTES, within=folder.root))


def write(folder: DriverFolder, report: ExitReport) -> None:
    """Write exit.json, without the log if there is not enough space; give up after a while.

    Until then the shim's lock prevents the exit from being treated as unknown.
    """
    deadline = time.monotonic() + REPORT_WITHIN_S
    while True:
        try:
            replace_file(folder.control / EXIT, report.dumps())
            return
        except OSError as error:
            if time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    sys.stderr.write(f"exit.json cannot be written: {error}\n")
                return
            report = replace(report, log_tail="")
        time.sleep(REPORT_AGAIN_S)  # no event reports free space


def _last_seq(folder: DriverFolder) -> int | None:
    """Return the last event number that the driver reported as sent; None if there is none."""
    try:
        path = folder.own / LAST_SEQ
        number = (read_file(path, most=_LONGEST_NUMBER + 2, within=folder.root) or "").strip()
    except (OSError, ValueError):  # a link, a folder, or not text: the driver's code wrote it
        return None
    return whole(number)


def _masked(folder: DriverFolder, spec: DriverSpec, log: str) -> str:
    """Return a log without the secrets given to the driver, which are read from its files."""
    secrets = References(env_allowlist=spec.env_allowlist, secrets_dir=spec.secrets_dir)
    try:
        for name in (SPEC, ASSIGNMENT, TASK):
            if text := read_file(folder.control / name):
                secrets.learn(json.loads(text))
        return secrets.mask(log)
    except (OSError, ValueError) as error:  # every driver gets an exit, with a log or without
        return f"The log is not shown because its secrets are unknown: {type(error).__name__}"
