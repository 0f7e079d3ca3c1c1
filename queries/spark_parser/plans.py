"""Convert an analyzed plan into texts that can be compared without Spark.

Only parts on which state depends are included: keys, aggregates, filters, watermarks, joins, and
how columns are derived from others. `queries.domain.probes.plan_shapes` interprets the result.
"""

from typing import Any

from queries.spark_parser.parsed import kind_of, members

#: Nodes that only name what is below them.
_TRANSPARENT = frozenset({"SubqueryAlias", "View", "ResolvedHint", "CollectMetrics"})


def nodes_of(plan: Any) -> dict[str, Any]:
    """Return the JVM's analyzed plan as `{"op", "streaming", "children", …}`."""
    return _node(plan, {})


def _node(plan: Any, definitions: dict[int, Any]) -> dict[str, Any]:
    op = kind_of(plan)
    if op == "WithCTE":
        for definition in members(plan.cteDefs()):
            definitions[int(definition.id())] = definition.child()
        return _node(plan.plan(), definitions)
    if op == "CTERelationRef":
        return _reference(plan, definitions)
    children = members(plan.children())
    if op in _TRANSPARENT and len(children) == 1:
        return _node(children[0], definitions)
    return {
        "op": op,
        "streaming": bool(plan.isStreaming()),
        **_parts(plan, op),
        "children": [_node(child, definitions) for child in children],
    }


def _reference(plan: Any, definitions: dict[int, Any]) -> dict[str, Any]:
    """Return a relation that WITH defines, with its columns' names as they are used."""
    child = definitions[int(plan.cteId())]
    names, defined_names = _texts(plan.output()), _texts(child.output())
    return {
        "op": "Rename",
        "streaming": bool(plan.isStreaming()),
        "columns": [[a, b] for a, b in zip(names, defined_names, strict=False) if a != b],
        "children": [_node(child, definitions)],
    }


def _parts(plan: Any, op: str) -> dict[str, Any]:
    match op:
        case "Aggregate":
            expressions = members(plan.aggregateExpressions())
            return {
                "keys": _texts(plan.groupingExpressions()),
                "expressions": [_text(expression) for expression in expressions],
                "aggregates": list(
                    dict.fromkeys(a for expression in expressions for a in _inside(expression))
                ),
            }
        case "Project":
            return {"expressions": _texts(plan.projectList())}
        case "Expand":
            rows = [_texts(row) for row in members(plan.projections())]
            return {"projections": rows, "output": _texts(plan.output())}
        case "Filter":
            return {"condition": _text(plan.condition())}
        case "Join":
            condition = plan.condition()
            text = _text(condition.get()) if condition.isDefined() else ""
            return {"join": _text(plan.joinType()), "condition": text}
        case "EventTimeWatermark":
            return {"column": _text(plan.eventTime()), "delay": _text(plan.delay())}
        case "Deduplicate" | "DeduplicateWithinWatermark":
            return {"keys": _texts(plan.keys())}
        case "StreamingRelation" | "StreamingRelationV2" | "LogicalRelation" | "LocalRelation":
            return {}
        case _:
            return {"text": str(plan.simpleString(1000)).lstrip("~ ")}


def _inside(expression: Any) -> list[str]:
    """Return the aggregate functions within an expression."""
    if kind_of(expression) == "AggregateExpression":
        return [_text(expression)]
    return [aggregate for child in members(expression.children()) for aggregate in _inside(child)]


def _texts(sequence: Any) -> list[str]:
    return [_text(member) for member in members(sequence)]


def _text(value: Any) -> str:
    return str(value.toString())
