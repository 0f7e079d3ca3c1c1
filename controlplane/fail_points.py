"""Define named points at which a test can have a process killed; elsewhere, they do nothing.

The worker, shim and ingester pass these points. `HEADGATE_FAIL_POINT` selects one: a process that
reaches it is ended by SIGKILL, as by the OOM killer or an operator, without output or cleanup.
Besides the points below, each step of a multi-step operation has two, before and after its action:
`<verb>.<step number>.before` and `.after`.
"""

import os
import signal

ENVIRONMENT = "HEADGATE_FAIL_POINT"

AFTER_INTENT = "after_intent"  # worker: the driver's files exist, its shim does not
AFTER_SPAWN = "after_spawn"  # worker: the shim runs
TAKEN_OVER = "taken_over"  # worker: the rows name a standby, its files do not
BEFORE_ASSIGNMENT = "before_assignment"  # worker: current.json names it, its assignment is old
BEFORE_IDENT = "before_ident"  # shim: the driver runs, unidentified
AFTER_IDENT = "after_ident"  # shim: ident.json exists
AFTER_EXIT = "after_exit"  # shim: exit.json exists, nobody was notified
BEFORE_ACK = "before_ack"  # ingester: events are stored, not acknowledged
AFTER_ALERT = "after_alert"  # worker: a message was sent, its row does not say so

NAMES = (
    AFTER_INTENT,
    AFTER_SPAWN,
    TAKEN_OVER,
    BEFORE_ASSIGNMENT,
    BEFORE_IDENT,
    AFTER_IDENT,
    AFTER_EXIT,
    BEFORE_ACK,
    AFTER_ALERT,
)


def reach(name: str) -> None:
    """Pass through a fail point; never return if a test has selected it."""
    if os.environ.get(ENVIRONMENT) == name:
        os.kill(os.getpid(), signal.SIGKILL)
