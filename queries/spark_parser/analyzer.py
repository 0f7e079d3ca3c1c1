"""Run Spark's own analyzer without a session: names, types and watermarks over known columns.

Catalyst resolves SQL text against temporary views in an in-memory catalog. No other part of Spark
runs: there is no context and no data source, and no file is opened.
"""

from typing import Any

from queries.domain.definitions.sql_verdict import SqlQuestion, View

_CATALYST = "org.apache.spark.sql.catalyst"
#: `CatalogTable.VIEW_STORING_ANALYZED_PLAN`: the view contains its plan, not a text.
_HOLDS_PLAN = "view.storingAnalyzedPlan"
#: Otherwise a schema in a text, such as that of `from_json`, names a class that is instantiated.
_CLASSES_BY_SCHEMA = "spark.sql.udt.allowCreatingUDTFromString"


class Analyzer:
    """A catalog and an analyzer in a JVM, for analyzing one text."""

    def __init__(self, jvm: Any, question: SqlQuestion) -> None:
        self._jvm = jvm
        self._sql = jvm.org.apache.spark.sql
        self._none = jvm.scala.Option.empty()
        conf = self._object("org.apache.spark.sql.internal.SQLConf").get()
        conf.clear()  # from the previous question; a gateway thread keeps its own
        for key, value in question.conf.items():
            conf.setConfString(key, value)
        conf.setConfString(_CLASSES_BY_SCHEMA, "false")
        catalyst = self._sql.catalyst
        registry = f"{_CATALYST}.analysis."
        self._catalog = catalyst.catalog.SessionCatalog(
            catalyst.catalog.InMemoryCatalog(
                jvm.org.apache.spark.SparkConf(False),
                jvm.org.apache.hadoop.conf.Configuration(False),
            ),
            self._object(f"{registry}FunctionRegistry").builtin().clone(),
            self._object(f"{registry}TableFunctionRegistry").builtin().clone(),
            conf,
        )
        self._analyzer = catalyst.analysis.Analyzer(self._catalog)
        self._params = question.params
        for view in question.views:
            self._create(view)

    def plan(self, parsed: Any) -> Any:
        """Return the analyzed plan of a parsed text; py4j raises Spark's errors."""
        return self._analyzed(self._bound(parsed) if self._params else parsed)

    def _analyzed(self, parsed: Any) -> Any:
        tracker = self._sql.catalyst.QueryPlanningTracker(self._none)
        return self._analyzer.executeAndCheck(parsed, tracker)

    def _bound(self, parsed: Any) -> Any:
        """Return a parsed text with its parameters' values, as `spark.sql(text, args=…)` binds."""
        names, values = self._jvm.java.util.ArrayList(), self._jvm.java.util.ArrayList()
        literal = self._object(f"{_CATALYST}.expressions.Literal")
        for name, value in self._params.items():
            names.add(name)
            values.add(literal.apply(value))
        sequence = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala
        named = self._sql.catalyst.analysis.NameParameterizedQuery
        return named(parsed, sequence(names).toSeq(), sequence(values).toSeq())

    def _create(self, view: View) -> None:
        plan = self._relation(view)
        if view.watermark is not None:
            column, delay = view.watermark
            logical = self._sql.catalyst.plans.logical
            parts = self._object(f"{_CATALYST}.analysis.UnresolvedAttribute")
            interval = self._object(f"{_CATALYST}.util.IntervalUtils")
            text = self._jvm.org.apache.spark.unsafe.types.UTF8String.fromString(delay)
            plan = self._analyzed(
                logical.EventTimeWatermark(
                    self._jvm.java.util.UUID.randomUUID(),
                    parts.quotedString(column),
                    interval.stringToInterval(text),
                    plan,
                )
            )
        self._catalog.createTempView(view.name, self._view(view.name, plan), True)

    def _relation(self, view: View) -> Any:
        schema = self._object("org.apache.spark.sql.types.StructType").fromDDL(view.columns)
        attributes = self._object(f"{_CATALYST}.types.DataTypeUtils").toAttributes(schema)
        rows = self._object("scala.collection.immutable.Nil")
        logical = self._sql.catalyst.plans.logical
        return logical.LocalRelation(attributes, rows, view.streaming, self._none)

    def _view(self, name: str, plan: Any) -> Any:
        """Return a temporary view as `Dataset.createTempView` creates it."""
        named_arguments = {
            "identifier": self._sql.catalyst.TableIdentifier(name),
            "tableType": self._object(f"{_CATALYST}.catalog.CatalogTableType").VIEW(),
            "storage": self._object(f"{_CATALYST}.catalog.CatalogStorageFormat").empty(),
            "schema": plan.schema(),
        }
        table = self._object(f"{_CATALYST}.catalog.CatalogTable")
        kind = self._jvm.java.lang.Class.forName(f"{_CATALYST}.catalog.CatalogTable")
        types = [
            parameter.getSimpleName() for parameter in kind.getConstructors()[0].getParameterTypes()
        ]
        arguments = list(named_arguments.values())
        arguments += [
            getattr(table, f"apply$default${position}")()
            for position in range(len(arguments) + 1, len(types) + 1)
        ]
        empty = self._object("scala.Predef").Map().empty()
        arguments[types.index("Map")] = empty.updated(_HOLDS_PLAN, "true")  # its properties
        catalog_table = self._sql.catalyst.catalog.CatalogTable(*arguments)
        option = self._jvm.scala.Option.apply(plan)
        return self._sql.catalyst.catalog.TemporaryViewRelation(catalog_table, option)

    def _object(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)
