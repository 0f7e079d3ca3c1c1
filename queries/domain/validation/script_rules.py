"""Validate the script in an application's definition."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from queries.domain.definitions.spec import ApplicationSpec, Script
from queries.domain.errors import Problem
from queries.domain.schedules.rules import schedule_problems
from queries.domain.validation.code_rules import WITHOUT_CODE

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MEMORY = re.compile(r"\d+[mg]", re.IGNORECASE)
_ARGUMENTS_AT_MOST = 200
_ARGUMENT_LIMIT = 4_096


def script_problems(spec: ApplicationSpec) -> list[Problem]:
    """Return what is wrong with an application's script, including a missing or unexpected one."""
    script = spec.script
    if spec.kind == "queries":
        if spec.schedule is not None:
            message = "applies only to applications of kind script."
            return [Problem("schedule", spec.schedule.kind, message, "Give it to a query instead.")]
        if script is None:
            return []
        way_out = "Set the kind to script, or remove the script."
        return [Problem("script", "", "applies only to applications of kind script.", way_out)]
    if script is None:
        return [Problem("script.file", "", "is missing.", "Set the script's file or module.")]
    problems = [*_program(script, spec), *_arguments(script), *_submit(script, spec)]
    if spec.require_preflight:
        text = "is not possible for a script because its queries are known only after it starts."
        problems.append(Problem("require_preflight", "true", text, "Turn it off."))
    if spec.schedule is not None and spec.schedule.params:
        text = "cannot be given to a script."
        problems.append(Problem("schedule.params", "", text, "Use the script's arguments."))
    return problems + schedule_problems(spec.schedule, ends=True)


def _program(script: Script, spec: ApplicationSpec) -> Iterable[Problem]:
    if bool(script.file) == bool(script.module):
        both = "is set twice." if script.file else "is missing."
        yield Problem("script.file", script.file[:200], both, "Set either a file or a module.")
        return
    if not spec.has_code:
        field = "script.file" if script.file else "script.module"
        value = script.file or script.module
        way_out = "Add the folder that contains it (python_path), or upload the code."
        message = WITHOUT_CODE
        yield Problem(field, value[:200], message, way_out)
    elif script.file:
        yield from _in_folders("script.file", script.file, spec)
        if not script.file.endswith(".py"):
            message = "is not a Python file."
            yield Problem("script.file", script.file[:200], message, "Use a file that ends in .py.")
    elif not _MODULE.fullmatch(script.module):
        message, way_out = "does not name a module.", 'Write "package.module".'
        yield Problem("script.module", script.module[:200], message, way_out)


def _in_folders(field: str, file: str, spec: ApplicationSpec) -> Iterable[Problem]:
    """Yield what is wrong with a file's path: it is absolute in a folder, or relative in `code`."""
    path, folders = PurePosixPath(file), spec.python_path
    if not file.startswith("/"):
        if spec.code is None:
            yield Problem(field, file[:200], "is not absolute.", "Start it with /.")
        elif ".." in path.parts:
            message, way_out = "points outside the application's code.", "Write it without “..”."
            yield Problem(field, file[:200], message, way_out)
        return
    if ".." in path.parts or not any(path.is_relative_to(folder) for folder in folders):
        under = f"Put it under {' or '.join(folders)}, or add" if folders else "Add"
        way_out = f"{under} its folder to python_path."
        yield Problem(field, file[:200], "is outside the application's code folders.", way_out)


def _arguments(script: Script) -> Iterable[Problem]:
    if len(script.arguments) > _ARGUMENTS_AT_MOST:
        way_out = (
            f"Use at most {_ARGUMENTS_AT_MOST} arguments; put the others into a file in the code "
            "folder."
        )
        count = str(len(script.arguments))
        yield Problem("script.arguments", count, "arguments are too many.", way_out)
    for index, text in enumerate(script.arguments):
        if len(text) > _ARGUMENT_LIMIT or "\0" in text:
            way_out = f"Use at most {_ARGUMENT_LIMIT} characters and no NUL."
            yield Problem(
                f"script.arguments.{index}", text[:100], "is not a valid argument.", way_out
            )


def _submit(script: Script, spec: ApplicationSpec) -> Iterable[Problem]:
    submit = script.submit
    for name, files in (("py_files", submit.py_files), ("files", submit.files)):
        for index, file in enumerate(files):
            yield from _in_folders(f"script.submit.{name}.{index}", file, spec)
    if submit.executor_memory and not _MEMORY.fullmatch(submit.executor_memory):
        message, way_out = "is not an amount of memory.", 'Write "1g" or "1536m".'
        yield Problem(
            "script.submit.executor_memory", submit.executor_memory[:200], message, way_out
        )
    sizes = {
        "executor_memory": submit.executor_memory,
        "executor_cores": submit.executor_cores,
        "num_executors": submit.num_executors,
        "total_executor_cores": submit.total_executor_cores,
    }
    for name, value in sizes.items():
        if value and spec.master.startswith("local"):
            message = f"has no effect with {spec.master}, where the driver is the only executor."
            way_out = "Choose a cluster master, or remove it."
            yield Problem(f"script.submit.{name}", str(value), message, way_out)
