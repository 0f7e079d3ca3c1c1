"""Capture why something failed, from Spark and Python, in one serializable form.

Spark wraps errors: the useful part is at the end of a chain of causes, sometimes as a Python
traceback inside a Java message. Everything is read immediately and defensively, because the JVM may
be dying.
"""

import contextlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from headgate_ground import packages, spark_names
from queries.domain.failures.error_text import bounded, left_out, telling
from queries.domain.protocol import RunError

MESSAGE_LIMIT = 32 * 1024  # characters, as documented for `RunError.message`
ROOT_LIMIT = 2_000
_MASKED = 8  # the part of a text that is masked, as a multiple of the part that is kept
_CHAIN_LIMIT = 20  # causes to follow; Spark's chains have three to six
#: The last line of a Python traceback: "package.SomeError: text".
_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$", re.DOTALL)

Mask = Callable[[str], str]


class StepFailed(Exception):
    """Something failed in a named step, such as "source 'flights' (json)"."""

    def __init__(self, step: str, cause: BaseException, *, error_class: str = "") -> None:
        super().__init__(f"{step}: {cause}")
        self.step = step
        self.cause = cause
        self.error_class = error_class  # used if the cause has no class of its own


class ExitInUsersCode(Exception):
    """Users' code requested the process's exit: SystemExit, KeyboardInterrupt or the like.

    These are not subclasses of `Exception`, so handlers for `Exception` do not catch them: a thread
    would end silently, and Spark would wait forever for a callback to return.
    """

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Return an error with the exception that was raised, and its place in the user's code."""
        location = users_frame(traceback.extract_tb(error.__traceback__))
        exit_error = cls(f"{error!r} was raised{f' in {location}' if location else ''}")
        exit_error.__cause__ = error
        return exit_error


def users_frame(frames: Iterable[traceback.FrameSummary]) -> str:
    """Return the innermost frame that is in users' code: "module.py, line 12".

    "" if there is none: all frames belong to Python, to installed packages, or to Headgate.
    """
    paths = sysconfig.get_paths()
    ours = Path(__file__).parents[3]
    foreign = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    foreign += [str(ours / name) for name in packages.DRIVER]
    for frame in reversed(list(frames)):
        if frame.filename.startswith("<") or any(_below(frame.filename, root) for root in foreign):
            continue
        roots = [root for root in sys.path if root and _below(frame.filename, root)]
        name = frame.filename.removeprefix(max(roots, key=len, default="")).lstrip("/")
        return f"{name}, line {frame.lineno}"
    return ""


def _below(file: str, folder: str) -> bool:
    return file.startswith(f"{folder.rstrip('/')}/")


def from_python(error: BaseException, mask: Mask) -> RunError:
    """Return a Python exception as a `RunError`, including Java's part of its chain.

    If the exception cannot be read, for example when memory is exhausted, the result contains only
    its type.
    """
    cause = error.cause if isinstance(error, StepFailed) else error
    kind = _type_name(cause)
    return left_out(partial(_read, error, mask), RunError("", kind, kind, kind))


def _read(error: BaseException, mask: Mask) -> RunError:
    step = ""
    error_class = ""
    if isinstance(error, StepFailed):
        step, error_class, error = f"{error.step}: ", error.error_class, error.cause
    java = _java_origin(error)
    if java is not None:
        java_error = from_java(java, mask)
        return replace(
            java_error,
            error_class=java_error.error_class or error_class,
            message=bounded(step + java_error.message, MESSAGE_LIMIT),
        )
    root = _innermost(error)
    text = "".join(traceback.format_exception(error))
    return RunError(
        error_class=spark_names.condition(error) or error_class,
        type_name=_type_name(root),
        root_cause=_masked(mask, step + (_words(root) or _type_name(root)), ROOT_LIMIT),
        message=_masked(mask, f"{step}{_words(error)}\n\n{text}", MESSAGE_LIMIT),
    )


def from_java(throwable: Any, mask: Mask) -> RunError:
    """Return a Java throwable and its causes as a `RunError`."""
    chain = _chain(throwable)
    conditions = [name for cause in chain if (name := spark_names.condition(cause))]
    root = chain[-1]
    text = _answer(root, "getMessage")
    type_name, root_cause = _python_root(text) or (_answer(root, "getClass", "getName"), text)
    return RunError(
        error_class=telling(conditions),
        type_name=type_name,
        root_cause=_masked(mask, root_cause or type_name, ROOT_LIMIT),
        message=_masked(mask, _stack(throwable), MESSAGE_LIMIT),
    )


def refusal(
    why: str, message: str, holder_pid: int | None = None, *, owner_epoch: int | None = None
) -> RunError:
    """Return the error for a start that the checkpoint's lock or owner file prevents."""
    return RunError(
        error_class="",
        type_name="CheckpointRefused",
        root_cause=message,
        message=message,
        refused=why,
        holder_pid=holder_pid,
        owner_epoch=owner_epoch,
    )


def _java_origin(error: BaseException) -> Any:
    """Return the Java throwable behind a PySpark or py4j exception; None for pure Python."""
    origin = getattr(error, "_origin", None)
    return origin if origin is not None else getattr(error, "java_exception", None)


def _innermost(error: BaseException) -> BaseException:
    for _ in range(_CHAIN_LIMIT):
        inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if inner is None or isinstance(error, ExitInUsersCode):
            break
        error = inner
    return error


def _type_name(error: BaseException) -> str:
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return module + kind.__qualname__


def _chain(throwable: Any) -> list[Any]:
    chain = [throwable]
    with contextlib.suppress(Exception):
        while len(chain) < _CHAIN_LIMIT:
            cause = chain[-1].getCause()
            if cause is None:
                break
            chain.append(cause)
    return chain


def _answer(java: Any, *methods: str) -> str:
    """Return the result of a chain of Java methods as a string; "" if one of them fails."""
    with contextlib.suppress(Exception):
        for name in methods:
            java = getattr(java, name)()
        return str(java or "")
    return ""


def _stack(throwable: Any) -> str:
    from pyspark import SparkContext

    with contextlib.suppress(Exception):
        utils = getattr(SparkContext._jvm, "org.apache.spark.util.Utils")
        return str(utils.exceptionString(throwable))
    return _answer(throwable, "getMessage")


def _python_root(text: str) -> tuple[str, str] | None:
    """Return the type and message of the last exception in a Java message's Python traceback."""
    if "Traceback (most recent call last)" not in text:
        return None
    last = text.rpartition("Traceback (most recent call last)")[2]
    lines = [line for line in last.splitlines() if line.strip()]
    # The exception begins at the first line after the frames that is not indented.
    raised = [index for index, line in enumerate(lines) if index and not line.startswith(" ")]
    if not raised:
        return None
    match = _RAISED.match("\n".join(lines[raised[0] :]).strip())
    return (match[1], match[2] or "") if match else None


def _words(error: BaseException) -> str:
    """Return an exception's message; for users' exceptions, getting the message may itself fail."""
    return left_out(partial(str, error), "")


def _masked(mask: Mask, text: str, limit: int) -> str:
    """Mask a string, then cut it: cutting first could leave half a secret.

    The middle of a very long string is removed before masking, because it is cut in any case.
    """
    return bounded(mask(bounded(text, _MASKED * limit)).strip(), limit)
