"""A query's whole form: Django forms in, the JSON form of a QuerySpec out, and back.

A definition has lists (sources, tables), so the whole is a bundle of one main form, two form
sets, and the form of the application's own definition where the query gets one of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

from queries.domain.validation.formats import CONNECTORS
from queries.views.definitions.application_form import ApplicationSpecForm, initial_of
from queries.views.definitions.query_form import (
    TIMED_TRIGGERS,
    QueryForm,
    SourceFormSet,
    TableFormSet,
)


def filled_rows(formset: Any) -> list[tuple[int, dict[str, Any]]]:
    """Return (row, cleaned data) of the rows in which something was typed."""
    return [
        (row, form.cleaned_data)
        for row, form in enumerate(formset.forms)
        if any(form.cleaned_data.values())
    ]


def _relation(data: Mapping[str, Any]) -> dict[str, Any]:
    relation = {"name": data["name"], "format": data["format"], "options": data["options"]}
    if data["ddl_schema"]:
        relation["schema"] = data["ddl_schema"]
    if data.get("watermark_column") or data.get("watermark_delay"):
        relation["watermark"] = {
            "column": data["watermark_column"],
            "delay": data["watermark_delay"],
        }
    return relation


@dataclass(slots=True)
class Bundle:
    """The forms of one page, and what to make of them together."""

    main: QueryForm
    sources: Any
    tables: Any
    own: ApplicationSpecForm

    @property
    def forms(self) -> tuple[Any, ...]:
        """Return every form and form set of the page."""
        return (self.main, self.sources, self.tables, self.own)

    def is_valid(self) -> bool:
        """Tell whether everything typed can be read; what it means is the catalog's to say."""
        return all(form.is_valid() for form in self.forms)

    def faulty(self) -> str:
        """Return how many fields are at fault, as "2 fields need a look"; "" for none."""
        count = sum(
            len(one.errors)
            for form in self.forms
            for one in getattr(form, "forms", (form,))
            if one.is_bound
        )
        return "" if not count else "fix 1 field" if count == 1 else (f"fix {count} fields")

    def lacking(self) -> list[str]:
        """Return the connectors that the formats need and the query's own driver lacks."""
        if not self.main.is_bound or self.main["home"].value() != "own":
            return []
        sources = self.sources.forms if self.main["kind"].value() == "sql" else []
        formats = [form["format"].value() for form in sources] + [self.main["sink_format"].value()]
        needed = {CONNECTORS[name] for name in formats if name in CONNECTORS}
        return sorted(needed - set(self.own["connectors"].value() or ()))

    def spec(self) -> dict[str, Any]:
        """Return the query's JSON form."""
        data = self.main.cleaned_data
        spec: dict[str, Any] = {"kind": data["kind"]}
        if data["kind"] == "sql":
            spec["sources"] = [_relation(row) for _, row in filled_rows(self.sources)]
            if tables := [_relation(row) for _, row in filled_rows(self.tables)]:
                spec["tables"] = tables
            spec["sql"] = data["sql"].replace("\r\n", "\n")
        else:
            spec |= {"function": data["function"], "params": data["params"]}
        if data["sink_format"] or data["sink_options"] or data["kind"] == "sql":
            spec["sink"] = {
                "format": data["sink_format"],
                "options": data["sink_options"],
                "output_mode": data["output_mode"] or "append",
            }
            if data["partition_by"]:
                spec["sink"]["partition_by"] = data["partition_by"]
        return {**spec, **self._running()}

    def _running(self) -> dict[str, Any]:
        data = self.main.cleaned_data
        trigger = {"kind": data["trigger_kind"] or "processing_time"}
        if data["trigger_interval"] and trigger["kind"] in TIMED_TRIGGERS:
            trigger["interval"] = data["trigger_interval"]
        spec: dict[str, Any] = {"trigger": trigger}
        return spec | {name: data[name] for name in ("description", "pool", "conf") if data[name]}

    def body(self) -> dict[str, Any]:
        """Return what the API takes: to create this query, or to change it where it is there."""
        data = self.main.cleaned_data
        if not data["home"]:  # a query that is there stays where it is
            return {"spec": self.spec()}
        body: dict[str, Any] = {"name": data["name"]}
        if data["home"] == "shared":
            body["application"] = data["application"]
        elif own := self.own.spec():
            body["application_spec"] = own
        if data["checkpoint"]:
            body["checkpoint"] = data["checkpoint"]
        return {**body, "spec": self.spec()}

    def reshaped(self, act: str) -> "Bundle":
        """Return the page with a row more ("add-sources") or less ("remove-tables-1").

        "connect-kafka" gives its driver a connector. What was typed stays as it was typed, and is
        not judged yet.
        """
        verb, _, where = act.partition("-")
        which, _, row = where.partition("-")
        rows = {"sources": _typed(self.sources), "tables": _typed(self.tables)}
        if verb == "add" and which in rows:
            rows[which].append({})
        elif verb == "remove" and which in rows and row.isdigit():
            del rows[which][int(row) : int(row) + 1]
        own = _raw(self.own)
        if verb == "connect" and where:
            own["connectors"] = sorted({*(own["connectors"] or ()), where})
        page = unbound(_raw(self.main), rows["sources"], rows["tables"], own)
        if verb == "add" and which in rows:  # one goes on typing in the new row
            formset = page.sources if which == "sources" else page.tables
            formset.forms[-1].fields["name"].widget.attrs["autofocus"] = True
        return page


def _raw(form: forms.BaseForm) -> dict[str, Any]:
    return {name: form[name].value() for name in form.fields}


def _typed(formset: Any) -> list[dict[str, Any]]:
    return [_raw(form) for form in formset.forms]


def unbound(
    main: Mapping[str, Any],
    sources: list[dict[str, Any]],
    tables: list[dict[str, Any]],
    own: Mapping[str, Any],
) -> Bundle:
    """Return a page that shows these values."""
    return Bundle(
        main=QueryForm(initial=dict(main)),
        sources=SourceFormSet(initial=sources, prefix="sources"),
        tables=TableFormSet(initial=tables, prefix="tables"),
        own=ApplicationSpecForm(initial=dict(own), prefix="own"),
    )


def blank() -> Bundle:
    """Return the page of a query to be, with room for its first source."""
    return unbound({"trigger_interval": "10 seconds"}, [{}], [], initial_of({}))


def posted(data: Any) -> Bundle:
    """Return the page with what a browser sent."""
    return Bundle(
        main=QueryForm(data),
        sources=SourceFormSet(data, prefix="sources"),
        tables=TableFormSet(data, prefix="tables"),
        own=ApplicationSpecForm(data, prefix="own"),
    )


def of_body(body: Mapping[str, Any]) -> Bundle:
    """Return the page that shows a query's JSON form, whole as the API takes it."""
    spec = body.get("spec") or {}
    sink, trigger = spec.get("sink") or {}, spec.get("trigger") or {}
    main = {
        **{name: spec[name] for name in ("kind", "sql", "function", "params") if name in spec},
        "name": body.get("name", ""),
        "home": "shared" if body.get("application") else "own",
        "application": body.get("application", ""),
        "checkpoint": body.get("checkpoint", ""),
        "sink_format": sink.get("format", ""),
        "sink_options": sink.get("options", {}),
        "output_mode": sink.get("output_mode", "append"),
        "partition_by": sink.get("partition_by", ()),
        "trigger_kind": trigger.get("kind", "processing_time"),
        "trigger_interval": trigger.get("interval", ""),
        "description": spec.get("description", ""),
        "pool": spec.get("pool", ""),
        "conf": spec.get("conf", {}),
    }
    return unbound(
        main,
        [_row(source) for source in spec.get("sources", ())],
        [_row(table) for table in spec.get("tables", ())],
        initial_of(body.get("application_spec") or {}),
    )


def _row(relation: Mapping[str, Any]) -> dict[str, Any]:
    watermark = relation.get("watermark") or {}
    return {
        **relation,
        "ddl_schema": relation.get("schema", relation.get("ddl_schema", "")),
        "watermark_column": watermark.get("column", ""),
        "watermark_delay": watermark.get("delay", ""),
    }
