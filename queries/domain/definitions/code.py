"""What of a definition brings code into a driver: only who may write Python changes that.

Spark runs as the drivers' account what it is given here: modules, classes it loads by name,
programs it starts, images of executors, and masters, which answer a driver in Java's own
serialization. Much of it is refused to everybody (`configuration`); what is left is legitimate,
and as much as code. A connector is none: its jars are put into place by whoever runs the host.
"""

import re
from collections.abc import Iterator, Mapping

from queries.domain.definitions import hadoop
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, Sink, SqlQuery

#: Configuration that names a program, a script or an image to run. Of Hadoop's keys, all that are
#: not known to tune are code as well (`hadoop.is_tuning`).
_CONF = re.compile(
    r"spark\.kubernetes\.container\.image"
    r"|spark\.hadoop\..*(script|command|cmd|shell|exec|mapping\.impl)\b.*",
    re.IGNORECASE,
)
#: Options of a connector's client that load a class by name, or run a program.
_OPTION = re.compile(
    r".*(\.class|\.classes|\.cmd|\.command|\.reporters|\.providers|\.strategy|\.assignor)",
    re.IGNORECASE,
)
#: Variables that say where and as whom a library connects. Any other may mean code to Python,
#: to Java or to a library in the driver: no list of what does is complete.
_HARMLESS = re.compile(
    r"AWS_(REGION|DEFAULT_REGION|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN)|TZ|LANG|LC_ALL"
)

#: Fields of an application that say what its queries import.
IMPORTED = ("python_path", "code", "packages")

Query = SqlQuery | PythonQuery


def brings_code(before: Query | None, after: Query) -> list[str]:
    """Return the fields by which a query's definition brings code in that it had not; sorted.

    A definition in Python always does: its parameters and its trigger are its function's too.
    """
    if isinstance(after, PythonQuery):
        return ["kind"]
    return _changed(dict(_of_query(before)) if before else {}, dict(_of_query(after)))


def application_brings_code(before: ApplicationSpec | None, after: ApplicationSpec) -> list[str]:
    """Return the fields by which an application's definition brings other code in; sorted.

    What is taken away counts as well: another module of the same name may take its place.
    """
    known = before or ApplicationSpec()
    return _changed(dict(_of_application(known)), dict(_of_application(after)))


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))


def _of_query(spec: Query) -> Iterator[tuple[str, object]]:
    """Yield (field, value) of what is as much as code in a query."""
    options: list[tuple[str, Mapping[str, str]]] = []
    if isinstance(spec, SqlQuery):
        options += [(f"sources.{one.name}", one.options) for one in spec.sources]
        options += [(f"tables.{one.name}", one.options) for one in spec.tables]
    if isinstance(spec.sink, Sink):
        options.append(("sink", spec.sink.options))
    for place, given in options:
        for name, value in given.items():
            if _OPTION.fullmatch(name):
                yield f"{place}.options.{name}", value


def _of_application(spec: ApplicationSpec) -> Iterator[tuple[str, object]]:
    for name in IMPORTED:
        value = getattr(spec, name)
        given = value.strip() if isinstance(value, str) else value
        if given:
            yield name, given
    if spec.listeners:
        yield "listeners", spec.listeners
    if spec.script is not None:
        yield "script", spec.script
    if not spec.master.startswith("local"):
        yield "master", spec.master
    for name, value in spec.conf.items():
        tuning = all(hadoop.is_tuning(key) for key in hadoop.keys_of(name))
        if _CONF.fullmatch(name) or not tuning:
            yield f"conf.{name}", value
    for name, value in spec.env.items():
        if not _HARMLESS.fullmatch(name):
            yield f"env.{name}", value
