"""Run the checks of the system's parts, each isolated from the others."""

import logging
from collections.abc import Callable

from queries.domain.system import Part, first_line, problem

logger = logging.getLogger(__name__)

#: Checks one part, or several with one request.
Check = Callable[[], Part | tuple[Part, ...]]


def checked(name: str, look: Check) -> tuple[Part, ...]:
    """Return the parts that a check finds; one that fails does not affect the others."""
    try:
        parts = look()
    except Exception as error:  # loop boundary: the others must still be reported
        logger.exception("the check of %s failed", name)
        cause = f"{type(error).__name__}: {first_line(error)}"
        return (problem(name, f"It could not be checked: {cause}."),)
    return (parts,) if isinstance(parts, Part) else parts
