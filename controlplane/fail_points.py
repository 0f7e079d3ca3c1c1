"""Named points at which a test may have a process killed; inert in every other process.

Worker, shim and ingester pass them. `HEADGATE_FAIL_POINT` names one: the process that comes by
ends there by SIGKILL, as a lack of memory or an operator would end it, with nothing said or
cleaned up. Beyond the points below, each step of an operation with several has two, before and
after its act: `<verb>.<number of the step>.before` and `.after`.
"""

import os
import signal

ENVIRONMENT = "HEADGATE_FAIL_POINT"

AFTER_INTENT = "after_intent"  # worker: the driver's files are there, its shim is not
AFTER_SPAWN = "after_spawn"  # worker: the shim is there
BEFORE_IDENT = "before_ident"  # shim: the driver is there, nothing says who it is
AFTER_IDENT = "after_ident"  # shim: ident.json is there
AFTER_EXIT = "after_exit"  # shim: exit.json is there, nobody was told
BEFORE_ACK = "before_ack"  # ingester: events are stored, not acknowledged
AFTER_ALERT = "after_alert"  # worker: a message is out, its row does not say so

NAMES = (AFTER_INTENT, AFTER_SPAWN, BEFORE_IDENT, AFTER_IDENT, AFTER_EXIT, BEFORE_ACK, AFTER_ALERT)


def reach(name: str) -> None:
    """Come by a point; do not return where a test has named it."""
    if os.environ.get(ENVIRONMENT) == name:
        os.kill(os.getpid(), signal.SIGKILL)
