"""Speak with the process that reads Delta checkpoints, and is not trusted since."""

from typing import Any, ClassVar

from headgate_ground.tool_process import ToolFailed, ToolProcess

#: Seconds for an answer about one file, including the start of Python and pyarrow.
ANSWERS_WITHIN_S = 60


class CheckpointProcess(ToolProcess):
    """The process that reads the Parquet files of checkpoints, which ends with the block."""

    name: ClassVar[str] = "The reader of the checkpoint"
    longest: ClassVar[int] = 64 * 1024 * 1024  # of the paths of live files, with escapes

    def actions(self, data: bytes) -> tuple[list[Any], bool]:
        """Return a file's actions, and whether live files are left out because there are too many.

        Raises `ToolFailed`.
        """
        self.write(b"%d\n" % len(data), ANSWERS_WITHIN_S)
        self.write(data, ANSWERS_WITHIN_S)
        answer = self.read_answer(ANSWERS_WITHIN_S)
        actions = answer.get("actions")
        if not isinstance(actions, list):
            raise ToolFailed(f"{self.name} has sent no actions.")
        return actions, answer.get("more") is not False
