"""Run a user's program in this process, in the same way as `python file` or `python -m module`."""

import importlib.util
import logging
import os
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from queries.domain.failures.error_text import left_out
from queries.domain.protocol import RunError, ScriptJob, ScriptQuestion
from queries.domain.scripts import called
from queries.runtime.checkpoints.owners import CheckpointRefused
from queries.runtime.failures.error_capture import Mask, from_python

logger = logging.getLogger("headgate.script")

#: Condition of a program that exited with a code other than 0, or could not be started.
EXITED = "HEADGATE_SCRIPT_EXIT"
#: Condition of a held program: a query has a new name, or is new.
IDENTITY_CONDITION = "HEADGATE_QUERY_IDENTITY"


def prepare(job: ScriptJob, code_roots: tuple[str, ...]) -> None:
    """Change to the program's folder, and let it, the JVM and Python workers find its modules.

    Call this before the JVM is started, because the JVM inherits the folder and the import path.
    """
    folder = Path(job.folder)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    os.chdir(folder)
    first = first_path(job, code_roots)
    os.environ["PYTHONPATH"] = ":".join(
        part for part in (first, os.environ.get("PYTHONPATH", "")) if part
    )


def first_path(job: ScriptJob, code_roots: tuple[str, ...]) -> str:
    """Return the program's `sys.path[0]`: its file's folder, or its code root."""
    if job.file:
        return str(Path(job.file).parent)
    parts = job.module.split(".")
    for root in code_roots:
        module_path = Path(root, *parts)
        if module_path.is_dir() or module_path.with_suffix(".py").is_file():
            return root
    return job.folder


class ScriptProgram:
    """The program's execution in the main thread."""

    def __init__(self, job: ScriptJob, code_roots: tuple[str, ...], mask: Mask) -> None:
        self._job = job
        self._first = first_path(job, code_roots)
        self._mask = mask
        self._over = threading.Event()
        self.error: RunError | None = None  # why it has failed; None: it has not

    @property
    def over(self) -> bool:
        """Return whether the program has ended, including its own threads."""
        return self._over.is_set()

    def run(self) -> None:
        """Run the program to its end, including its non-daemon threads; never raise an error."""
        try:
            self._execute()
            _join_threads()
        except SystemExit as left:
            self._note_exit(left.code)
        except BaseException as raised:  # whatever was raised, it ends the program and nothing else
            shown = raised.with_traceback(_of_users(raised))
            self.error = (
                raised.error
                if isinstance(raised, CheckpointRefused)
                else from_python(raised, self._mask)
            )
            left_out(partial(traceback.print_exception, shown), None)
        finally:
            self._over.set()

    def _note_exit(self, code: object) -> None:
        if code in (None, 0):
            _join_threads()
            return
        if not isinstance(code, int):  # a message, as for Python
            sys.stderr.write(f"{code}\n")
        exit_code = code if isinstance(code, int) else 1
        text = f"The script ended with exit code {exit_code & 0xFF}."
        self.error = RunError(EXITED, "SystemExit", text, text)

    def _execute(self) -> None:
        module = ModuleType("__main__")
        code = self._file(module) if self._job.file else self._module(module)
        # Kept, because its functions are called while its queries run, and are pickled by its name.
        sys.modules["__main__"] = module
        sys.argv = [str(module.__file__), *self._job.arguments]
        while self._first in sys.path:
            sys.path.remove(self._first)
        sys.path.insert(0, self._first)
        exec(code, module.__dict__)

    def _file(self, module: ModuleType) -> CodeType:
        module.__file__ = self._job.file
        return compile(Path(self._job.file).read_bytes(), self._job.file, "exec")

    def _module(self, module: ModuleType) -> CodeType:
        sys.path.insert(0, self._first)
        name = self._job.module
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        code: CodeType | None = loader.get_code(name) if loader is not None else None
        if spec is None or code is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module.__spec__, module.__package__ = spec, spec.parent
        module.__file__ = spec.origin
        return code


def identity_error(question: ScriptQuestion) -> RunError:
    """Return the error for a script that ended because an author must decide something."""
    new = called(question.name, question.asked)
    text = f"The query {new} is new, and others that the script started before are missing."
    return RunError(IDENTITY_CONDITION, "StartRefused", text, text)


def _join_threads() -> None:
    """Wait for the program's own threads, as Python does when it exits."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()


def _of_users(error: BaseException) -> Any:
    """Return the traceback, starting at the first frame of the program itself."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames
