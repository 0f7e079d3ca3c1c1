"""Refuse, before a query starts, what it would read or write outside of the data roots.

The control plane has looked at the definition when it was saved; here Spark has parsed it, on the
host where the links are.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from queries.domain.definitions.data_roots import DataRoots, option_places
from queries.domain.protocol import DriverSpec


class OutsideRoots(Exception):
    """A path of the definition lies where no data may; the message has the way out."""


def roots_of(spec: DriverSpec) -> DataRoots | None:
    """Return the roots that a driver was given; None for one of a release without them."""
    return DataRoots(spec.data_roots, spec.own_folders) if spec.data_roots else None


def require_options(roots: DataRoots | None, options: Mapping[str, str]) -> None:
    """Raise `OutsideRoots` for a path among the options of a reader or writer."""
    if roots is None:
        return
    for field, text in option_places("options", options):
        _require(roots, field.removeprefix("options."), text)


def require_plan(roots: DataRoots | None, frame: Any) -> None:
    """Raise `OutsideRoots` for a file or folder that a frame's plan reads by itself.

    As SQL's json.`/path` does. Streaming sources have been looked at by their options.
    """
    if roots is None:
        return
    for path in _paths(frame._jdf.queryExecution().analyzed(), frame.sparkSession._jvm):
        _require(roots, "the SQL text reads", path)


def _require(roots: DataRoots, field: str, text: str) -> None:
    if problem := roots.problem(field, text, os.path.realpath):
        raise OutsideRoots(
            f"{field} {text[:200]} {problem.message} {problem.way_out} "
            "What was given since this driver started needs a restart of the application."
        )


def _paths(plan: Any, jvm: Any) -> Iterator[str]:
    """Yield the root paths of every file relation in a plan, subqueries included."""
    class_for = jvm.java.lang.Class.forName
    by_location = class_for("org.apache.spark.sql.execution.datasources.HadoopFsRelation")
    by_table = class_for("org.apache.spark.sql.execution.datasources.v2.FileTable")
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        for sequence in (node.children(), node.innerChildren(), node.subqueries()):
            members = (sequence.apply(place) for place in range(sequence.size()))
            waiting.extend(one for one in members if hasattr(one, "subqueries"))
        name = node.getClass().getSimpleName()
        if name == "LogicalRelation" and by_location.isInstance(node.relation()):
            yield from _each(node.relation().location().rootPaths())
        elif name == "DataSourceV2Relation" and by_table.isInstance(node.table()):
            yield from _each(node.table().fileIndex().rootPaths())


def _each(paths: Any) -> Iterator[str]:
    yield from (paths.apply(place).toString() for place in range(paths.size()))
