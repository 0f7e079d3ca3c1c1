"""Read lines from a pipe to which a driver's code can write anything, for as long as it likes."""

import os
from dataclasses import dataclass

#: Bytes of a line; what drivers and the sandbox's first process write has less than 40.
LONGEST = 256
#: Bytes that one call reads: as many as a pipe holds unless its size was changed.
AT_ONCE = 65_536
#: Calls after which what is left of an ended process is not read: a pipe holds at most 1 MiB.
MOST_CALLS = 16


@dataclass(slots=True)
class PipeLines:
    """The lines of one pipe; longer ones than `LONGEST` are dropped."""

    _rest: bytes = b""
    _dropping: bool = False  # the beginning of this line was too long

    def read(self, descriptor: int) -> list[str] | None:
        """Return the complete lines that one call reads, without waiting; None if it is closed."""
        try:
            data = os.read(descriptor, AT_ONCE)
        except BlockingIOError:
            return []
        if not data:
            return None
        first, *others = data.split(b"\n")
        whole = [self._rest + first, *others]
        if self._dropping and others:
            whole[0] = b""
        self._dropping = (self._dropping and not others) or len(whole[-1]) > LONGEST
        self._rest = b"" if self._dropping else whole[-1]
        return [line.decode(errors="replace") for line in whole[:-1] if len(line) <= LONGEST]
