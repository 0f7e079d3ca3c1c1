"""How many examples a property is tried on: all of them, or the share that is asked for."""

import os

#: `make check` asks for a tenth.
SHARE = float(os.environ.get("HEADGATE_TEST_EXAMPLES", "1"))
#: Fewer would find nothing.
FEWEST = 5


def examples(number: int) -> int:
    """Return how many of a property's examples to try."""
    return max(FEWEST, round(number * SHARE)) if SHARE < 1 else number
