"""A failure's text as causes, root cause first, with the frames of Spark and Java folded.

Spark's messages contain a Python traceback, a JVM stack with its `Caused by`, and often both
nested; the line that matters is near the end, below hundreds of lines that do not.
"""

import re
from dataclasses import dataclass, field

from queries.domain.failures.error_text import bounded

_CAUSED_BY = re.compile(
    r"^\s*(Caused by: |The above exception was the direct cause|During handling of the above)"
)
_FRAME = re.compile(r'^(\s+at |\s+File "[^"]*", line \d+|\s+\.\.\. \d+ (more|common frames))')
_THEIRS = re.compile(
    r"\bat (org\.apache\.|java\.|javax\.|jdk\.|sun\.|scala\.|py4j\.|com\.sun\.|io\.netty\.)"
    r"|\bat org\.sparkproject\."
    r'|File "[^"]*(site-packages|dist-packages|/pyspark/|/py4j/|/lib/python3)'
    r"|File \"<frozen |\.\.\. \d+ (more|common frames)"
)


@dataclass(slots=True)
class Frames:
    """Consecutive frames: the user's own, or a library's (shown folded)."""

    own: bool
    lines: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Return the number of frames in these lines."""
        return sum(bool(_FRAME.match(line)) for line in self.lines)

    @property
    def text(self) -> str:
        """Return the lines as one text."""
        return "\n".join(self.lines)


@dataclass(slots=True)
class StackCause:
    """One exception in a chain: its message and where it was raised."""

    head: str
    frames: list[Frames] = field(default_factory=list)

    @property
    def first_line(self) -> str:
        """Return the most informative line, for a folded header."""
        return self.head.splitlines()[0][:300] if self.head else ""

    @property
    def long(self) -> bool:
        """Return whether to fold the header (Spark prints plans into messages)."""
        return len(self.head) > 600 or self.head.count("\n") > 8


def causes(text: str) -> list[StackCause]:
    """Return the exceptions in a text, root cause first."""
    chain: list[StackCause] = []
    for block in _blocks(bounded(text).expandtabs(4).splitlines()):
        start = next((i for i, line in enumerate(block) if _FRAME.match(line)), len(block))
        head = "\n".join(block[:start]).strip().removeprefix("Caused by: ")
        frames = _frames(block[start:])
        if head or frames:
            chain.append(StackCause(head, frames))
    return chain[::-1]


def _blocks(lines: list[str]) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in lines:
        if _CAUSED_BY.match(line):
            blocks.append([])
        blocks[-1].append(line)
    return blocks


def _frames(lines: list[str]) -> list[Frames]:
    frames: list[Frames] = []
    for line in lines:
        if not line.strip():
            continue
        if _FRAME.match(line):
            own = not _THEIRS.search(line)
            if not frames or frames[-1].own is not own:
                frames.append(Frames(own))
        elif not line.startswith((" ", "\t")):  # the exception below the frames of a traceback
            frames.append(Frames(True))
        frames[-1].lines.append(line)
    return frames
