"""Have a worker killed at a named point: a child of this process, and a real SIGKILL."""

import os
import signal
import traceback
from collections.abc import Callable

from django.db import connections

from controlplane import fail_points


def killed_at(point: str, act: Callable[[], object]) -> bool:
    """Let a child do it; return whether it was killed at the point. Fails where the act does.

    What the child does to Python objects is lost with it, as what a worker remembers is.
    """
    connections.close_all()  # a connection must not be shared over a fork
    child = os.fork()
    if not child:
        os.environ[fail_points.ENVIRONMENT] = point
        try:
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, f"the worker failed on its way to {point}"
    return False
