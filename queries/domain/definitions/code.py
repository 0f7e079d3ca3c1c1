"""Find the fields that load code into a driver: changing them requires the right to write Python.

Spark runs this code with the rights of the drivers' account: modules, classes loaded by name,
programs that it starts, executor images, and masters, which send a driver data in Java's own
serialization. Most of these settings are forbidden to everyone (`configuration`); the others are
legitimate, but equivalent to code. Connectors are not included: whoever runs the host installs
their jars.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from queries.domain.definitions import declarations
from queries.domain.definitions.configuration import reach_problems
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, Sink, SqlQuery

#: Configuration that specifies a program, a script or an image to run. All Hadoop keys that are not
#: known to be tuning count as code as well (`is_hadoop_tuning`).
_CONF = re.compile(
    r"spark\.kubernetes\.container\.image"
    r"|spark\.hadoop\..*(script|command|cmd|shell|exec|mapping\.impl)\b.*",
    re.IGNORECASE,
)
#: Options with which a connector's client loads a class by name or runs a program.
_OPTION = re.compile(
    r".*(\.class|\.classes|\.cmd|\.command|\.reporters|\.providers|\.strategy|\.assignor)",
    re.IGNORECASE,
)
#: Variables that specify where and under which account a library connects. Any other variable may
#: act as code for Python, Java or a library in the driver; no list of those could be complete.
_HARMLESS = re.compile(
    r"AWS_(REGION|DEFAULT_REGION|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN)|TZ|LANG|LC_ALL"
)
#: What a storage JVM needs in addition where a platform provides the account (IAM roles for
#: Kubernetes' service accounts): a role, and the file with the token for it.
_OF_AN_ACCOUNT = re.compile(r"AWS_(ROLE_ARN|ROLE_SESSION_NAME|WEB_IDENTITY_TOKEN_FILE)")

#: Fields of an application that determine what its queries import.
IMPORTED = ("python_path", "code", "packages")

Query = SqlQuery | PythonQuery


@dataclass(frozen=True, slots=True)
class Handed:
    """What of an application's definition reaches its storage JVM."""

    conf: dict[str, str]
    env: dict[str, str]
    withheld: tuple[str, ...]  # Hadoop's keys that do not, sorted


def handed_to_storage(conf: Mapping[str, str], env: Mapping[str, str]) -> Handed:
    """Return the settings of an application's storage JVM, whoever wrote them.

    The worker reads that JVM's answers and files, so nothing that only a Python author may bring
    runs in it: a Hadoop key passes if a SQL author may set it too, and its value does not contain
    an unknown class. Variables pass if they define the address or the account of a client; Hadoop's
    clients do not read any other variables that definitions may set.
    """
    hadoop_conf = {name: value for name, value in conf.items() if name.startswith("spark.hadoop.")}
    passed = {name: value for name, value in hadoop_conf.items() if _is_for_storage(name, value)}
    return Handed(
        conf=passed,
        env={
            name: value
            for name, value in env.items()
            if _HARMLESS.fullmatch(name) or _OF_AN_ACCOUNT.fullmatch(name)
        },
        withheld=tuple(sorted(hadoop_conf.keys() - passed.keys())),
    )


def _is_for_storage(name: str, value: str) -> bool:
    if _is_code(name) or "${" in value:
        return False
    return not reach_problems({name: value})


def _is_code(name: str) -> bool:
    """Return whether a configuration key is equivalent to code."""
    tuning = all(declarations.is_hadoop_tuning(key) for key in declarations.hadoop_keys_of(name))
    return _CONF.fullmatch(name) is not None or not tuning


def brings_code(before: Query | None, after: Query) -> list[str]:
    """Return the fields through which a query's definition adds code, sorted.

    A Python definition always does: its parameters and trigger are passed to its function too.
    """
    if isinstance(after, PythonQuery):
        return ["kind"]
    return _changed(dict(_of_query(before)) if before else {}, dict(_of_query(after)))


def application_brings_code(before: ApplicationSpec | None, after: ApplicationSpec) -> list[str]:
    """Return the fields through which an application's definition changes code, sorted.

    Removed code counts as well: another module of the same name may take its place.
    """
    former = before or ApplicationSpec()
    return _changed(dict(_of_application(former)), dict(_of_application(after)))


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))


def _of_query(spec: Query) -> Iterator[tuple[str, object]]:
    """Yield (field, value) for everything in a query that is equivalent to code."""
    options: list[tuple[str, Mapping[str, str]]] = []
    if isinstance(spec, SqlQuery):
        options += [(f"sources.{source.name}", source.options) for source in spec.sources]
        options += [(f"tables.{table.name}", table.options) for table in spec.tables]
    if isinstance(spec.sink, Sink):
        options.append(("sink", spec.sink.options))
    for field, values in options:
        for name, value in values.items():
            if _OPTION.fullmatch(name):
                yield f"{field}.options.{name}", value


def _of_application(spec: ApplicationSpec) -> Iterator[tuple[str, object]]:
    for name in IMPORTED:
        value = getattr(spec, name)
        setting = value.strip() if isinstance(value, str) else value
        if setting:
            yield name, setting
    if spec.listeners:
        yield "listeners", spec.listeners
    if spec.script is not None:
        yield "script", spec.script
    if not spec.master.startswith("local"):
        yield "master", spec.master
    for name, value in spec.conf.items():
        if _is_code(name):
            yield f"conf.{name}", value
    for name, value in spec.env.items():
        if not _HARMLESS.fullmatch(name):
            yield f"env.{name}", value
