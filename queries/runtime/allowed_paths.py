"""What a definition may do: SQL that is a query, and reads and writes within the allowed paths.

By the time `session.sql("DROP TABLE t")` returns, the table has been dropped. So the SQL is parsed
first, and every node of the parsed plan is checked, including those inside WITH and inside each
part of a union, where an INSERT could be hidden.

The control plane checked the definition when it was saved. Here Spark has parsed it, on the host
where its files and links exist.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headgate_ground import spark_names
from queries.domain.definitions.allowed_paths import PATHS, AllowedPaths, option_places
from queries.domain.protocol import DriverSpec
from queries.domain.tables.places import ICEBERG
from queries.domain.validation.spark_rules import ANY_FILES, OPTIONS_BY_FORMAT, refused
from queries.domain.validation.tables import NotATable, conf_keys, folder_of, table_folder, table_of
from queries.runtime.catalogs import is_checked
from queries.spark_parser.analyzer import (
    FUNCTION_BY_NAME,
    PlanNode,
    SqlRefused,
    calls,
    commands,
    kind_of,
    members,
    nodes,
    require_function,
    require_named_table,
    texts,
)


class QueryOnly(Exception):
    """The SQL is not a query over streaming sources."""


def require_query(session: Any, text: str) -> None:
    """Raise `QueryOnly`, which says what the SQL would do, unless it is only a query."""
    for name in commands(parsed_nodes(session, text), session._jvm):
        raise QueryOnly(
            f"the SQL is a command ({name}); only queries (SELECT, WITH, FROM, VALUES) are allowed"
        )


def parsed_nodes(session: Any, text: str) -> Iterator[PlanNode]:
    """Yield every node of a parsed plan, before anything in it is resolved."""
    parser = session._jsparkSession.sessionState().sqlParser()
    return nodes(parser.parsePlan(text), parser, session._jvm)


#: Functions that take options, the kind of the options, and the first position at which they may
#: appear.
_WITH_OPTIONS = {
    "from_xml": ("xml", 2),
    "schema_of_xml": ("xml", 1),
    "to_xml": ("xml", 1),
    "from_avro": ("avro", 2),
    "schema_of_avro": ("avro", 1),
}
_OF_PROTOBUF = ("from_protobuf", "to_protobuf")  # (data, message name, descriptor file, …)
#: The package of Iceberg's tables in a plan (1.11.0).
_ICEBERG_TABLES = "org.apache.iceberg.spark."
#: What a text that calls one of these contains, in upper case; a variable may stand for anything.
_OPENING = re.compile(r"XML|AVRO|PROTOBUF|IDENTIFIER|\$\{")


class OutsideRoots(Exception):
    """A path in the definition is outside the allowed paths; the message contains the remedy."""


def roots_of(spec: DriverSpec) -> AllowedPaths | None:
    """Return the roots that a driver was given; None if its release did not have allowed paths yet.

    Without any root, no data is allowed. Every release with allowed paths names its own folders.
    """
    folders = spec.data_roots or spec.own_folders
    return AllowedPaths(spec.data_roots, spec.own_folders) if folders else None


def require_options(roots: AllowedPaths | None, name: str, options: Mapping[str, str]) -> None:
    """Raise `OutsideRoots` for an option of a reader or writer that leads outside the roots.

    This covers paths, and options that become Hadoop configuration and could redirect a path.
    """
    if roots is None:
        return
    for problem in refused("options", name, options):
        raise OutsideRoots(f"{problem.sentence()}")
    for field, text in option_places("options", options):
        _require(roots, field.removeprefix("options."), text)


def require_table(
    roots: AllowedPaths | None, session: Any, name: str, options: Mapping[str, str]
) -> None:
    """Raise `OutsideRoots` for an Iceberg table outside the roots or the declared catalogs."""
    if roots is None or name.lower() != ICEBERG:
        return
    table = table_of(options)
    if is_checked(session, table.split(".")[0]):
        return  # its location is known once the catalog has answered
    try:
        location = table_folder(table, _catalog(session, table.split(".")[0]))
    except NotATable as error:
        raise OutsideRoots(f"table {table[:200]} {error} {error.way_out}") from None
    _require(roots, f"table {table}:", location)


def _catalog(session: Any, name: str) -> dict[str, str]:
    """Return the configuration that decides where a catalog's tables are."""
    return {key: session.conf.get(key, None) or "" for key in conf_keys(name)}


def require_text(roots: AllowedPaths | None, session: Any, text: str) -> None:
    """Raise `OutsideRoots` for anything outside the roots that Spark reads to analyze SQL.

    Before there is a plan to check, Spark lists a path and infers columns from its files, and
    errors in that analysis reveal both. So the parsed SQL is checked first: files (json.`/path`),
    the options that WITH passes to their reader, and the options of functions.
    """
    if roots is None:
        return
    for node in parsed_nodes(session, text):
        with _refused_anywhere():
            require_named_table(node)
        if node.kind == "UnresolvedRelation":
            parts = texts(node.plan.multipartIdentifier())
            _require_relation(roots, parts, node.plan.options())
            if len(parts) > 1 and (location := folder_of(parts, _catalog(session, parts[0]))):
                _require(roots, f"table {'.'.join(parts)[:200]}:", location)
        if _OPENING.search(text.upper()):
            for called in calls(node):
                _require_call(roots, called, session._jvm)


def _require_relation(roots: AllowedPaths, parts: list[str], options: Mapping[str, str]) -> None:
    """Check a table in SQL: files by their format, and the reader options from WITH."""
    first, last = "".join(parts[-2:-1]).lower(), parts[-1]
    own = len(parts) == 2 and (first in OPTIONS_BY_FORMAT or "." in first)
    is_file = own or (len(parts) > 1 and ("/" in last or ":" in last))
    for part in parts[: -1 if is_file else len(parts)]:
        if len(parts) > 1 and ("/" in part or ".." in part):  # a catalog would go to that folder
            raise OutsideRoots(f"the SQL names a table with {part[:200]}. Write its name only.")
    options_set = dict(options)
    if is_file:
        _require(roots, "the SQL text reads", last)
        first = first if first in OPTIONS_BY_FORMAT else ANY_FILES
    for problem in refused("WITH", first if is_file else "", options_set):
        raise OutsideRoots(problem.sentence())
    for field, named in option_places("WITH", options_set):
        _require(roots, field, named)


@contextmanager
def _refused_anywhere() -> Iterator[None]:
    """Raise `OutsideRoots` for SQL that is forbidden on any host."""
    try:
        yield
    except SqlRefused as error:
        raise OutsideRoots(str(error)) from None


def _require_call(roots: AllowedPaths, called: Any, jvm: Any) -> None:
    """Raise `OutsideRoots` if a function is passed a file, or options that could specify a file."""
    if kind_of(called) == FUNCTION_BY_NAME:
        with _refused_anywhere():
            require_function(called, jvm)
        return  # a column
    name = texts(called.nameParts())[-1].lower()
    arguments = [_value(argument) for argument in members(called.arguments())]
    if name in _OF_PROTOBUF:
        for argument in arguments[2:3]:
            _require_descriptor(roots, name, argument)
    elif name in _WITH_OPTIONS:
        kind, first = _WITH_OPTIONS[name]
        for argument in arguments[first:]:
            _require_map(name, kind, argument)


def _require_descriptor(roots: AllowedPaths, name: str, argument: Any) -> None:
    """Raise if the Protobuf descriptor file is outside the roots; bytes and options are allowed."""
    kind = kind_of(argument)
    if kind == "Literal" and argument.dataType().typeName() == "string":
        _require(roots, f"{name}()", str(argument.value()))
    elif kind != "Literal" and not _is_map(argument):
        raise OutsideRoots(
            f"the file of {name}() is an expression. Write its path as a string literal."
        )


def _require_map(name: str, kind: str, argument: Any) -> None:
    """Raise if options are not written as map('name', 'value'), or if one could specify a file."""
    if kind_of(argument) == "Literal" and argument.value() is None:
        return
    keys = members(argument.arguments())[::2] if _is_map(argument) else [argument]
    for key in keys:
        if kind_of(key) != "Literal":
            raise OutsideRoots(
                f"options of {name}() are an expression. Write map('name', 'value')."
            )
        written = str(key.value())
        if written.lower() not in OPTIONS_BY_FORMAT[kind] or written.lower() in PATHS:
            raise OutsideRoots(
                f"{written[:200]} is not allowed as an option of {name}(). Remove it."
            )


def _is_map(expression: Any) -> bool:
    return (
        kind_of(expression) == "UnresolvedFunction"
        and texts(expression.nameParts())[-1].lower() == "map"
    )


def _value(argument: Any) -> Any:
    """Return an argument without its name (`options => map(…)`)."""
    named = kind_of(argument) == "NamedArgumentExpression"
    return argument.value() if named else argument


def require_plan(roots: AllowedPaths | None, frame: Any) -> None:
    """Raise `OutsideRoots` for a file or folder that a frame's plan reads directly.

    An example is json.`/path` in SQL. Streaming sources were already checked by their options.
    """
    if roots is None:
        return
    for path in _paths(frame._jdf.queryExecution().analyzed(), frame.sparkSession._jvm):
        _require(roots, "the SQL text reads", path)


def _require(roots: AllowedPaths, field: str, text: str) -> None:
    if problem := roots.problem(field, text, os.path.realpath):
        raise OutsideRoots(
            f"{field} {text[:200]} {problem.message} {problem.way_out} Paths added since this "
            "driver started require a restart of the application."
        )


def _paths(plan: Any, jvm: Any) -> Iterator[str]:
    """Yield the root paths of every file and table relation in a plan, including subqueries.

    A Delta table is planned as a file relation (`DeltaLog.createRelation`).
    """
    by_location, by_table = spark_names.classes(
        [spark_names.FILE_RELATION, spark_names.FILE_TABLE], jvm
    )
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        for sequence in (node.children(), node.innerChildren(), node.subqueries()):
            members = (sequence.apply(index) for index in range(sequence.size()))
            waiting.extend(child for child in members if hasattr(child, "subqueries"))
        name = kind_of(node)
        if name == "LogicalRelation" and by_location.isInstance(node.relation()):
            yield from _path_texts(node.relation().location().rootPaths())
        elif name in ("DataSourceV2Relation", "StreamingRelationV2"):
            table = node.table()
            if by_table.isInstance(table):
                yield from _path_texts(table.fileIndex().rootPaths())
            elif table.getClass().getName().startswith(_ICEBERG_TABLES):
                yield _iceberg_location(table)


def _iceberg_location(table: Any) -> str:
    """Return the folder of an Iceberg table, or of the table that its metadata table describes."""
    if (name := kind_of(table)) != "SparkTable":
        raise OutsideRoots(f"{name} does not say which table it reads. Read the table itself.")
    return str(table.table().location())


def _path_texts(paths: Any) -> Iterator[str]:
    yield from (paths.apply(index).toString() for index in range(paths.size()))
