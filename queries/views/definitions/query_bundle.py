"""A query's complete form, and its input from form fields, the API's JSON or a URL.

The URL of a failure's action specifies where the SQL failed.

Because a definition contains lists (sources, tables), this is a bundle: a main form, a form set for
each list, and, if the query gets its own application, the form for that application's definition.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.http import HttpRequest, QueryDict

from queries.domain.accepted_values import refuse_characters
from queries.domain.definitions.spec import QuerySpec
from queries.domain.errors import Invalid, Problem
from queries.domain.sparks import OURS
from queries.domain.validation import tables
from queries.domain.validation.formats import CONNECTORS
from queries.selectors.definitions.definitions import QueryDefinition
from queries.views.console.fragments import whole
from queries.views.definitions.application_edit import ApplicationSpecForm
from queries.views.definitions.spec_form import (
    INPUT,
    CommasField,
    SpecForm,
    drop_empty_schedule,
    form_field,
    initial_of,
    rows_of,
    sentence,
)

#: Prefix of problems in the application's own definition.
_OWN = "application_spec."


class QueryForm(SpecForm):
    """The single-valued fields of a query: name, kind, SQL or function, sink, trigger…"""

    shape = QuerySpec

    name = form_field(str)
    kind = forms.ChoiceField(
        choices=[("sql", "SQL"), ("python", "Python")], widget=forms.RadioSelect
    )
    sink_partition_by = CommasField(required=False, widget=forms.TextInput(INPUT))
    home = forms.ChoiceField(
        choices=[("own", "a separate driver"), ("shared", "a shared application")],
        required=False,
        widget=forms.RadioSelect,
    )
    application = form_field(str)
    team = form_field(str)
    checkpoint = form_field(str)


def _row_forms() -> dict[str, type[SpecForm]]:
    return {
        name: type(f"{model.__name__}Form", (SpecForm,), {"shape": model})
        for name, model in rows_of(QueryForm.shape)
    }


def _filled(formset: Any) -> list[SpecForm]:
    """Return the rows that were filled in."""
    return [form for form in formset.forms if any(form.cleaned_data.values())]


@dataclass(slots=True)
class Bundle:
    """One page's forms, and their combined result."""

    main: QueryForm
    rows: dict[str, Any]  # form sets by the definition's key: "sources", "tables"
    own: ApplicationSpecForm

    @property
    def forms(self) -> tuple[Any, ...]:
        """Return every form and form set of the page."""
        return (self.main, *self.rows.values(), self.own)

    def is_valid(self) -> bool:
        """Return whether all input can be parsed; the catalog checks its meaning."""
        return all(form.is_valid() for form in self.forms)

    def faulty(self) -> str:
        """Return the number of fields with errors, as "fix 2 fields"; "" if there are none."""
        count = sum(
            len(one.errors)
            for form in self.forms
            for one in getattr(form, "forms", (form,))
            if one.is_bound
        )
        many = "fix 1 field" if count == 1 else f"fix {count} fields"
        return many if count else ""

    def lacking(self) -> list[str]:
        """Return the connectors that the formats need but that the query's own driver lacks."""
        if not self.main.is_bound or self.main["home"].value() != "own":
            return []
        sources = self.rows["sources"].forms if self.main["kind"].value() == "sql" else []
        formats = [form["format"].value() for form in sources] + [self.main["sink_format"].value()]
        spark = self.own["spark"].value() or OURS
        needed = {
            CONNECTORS[name]
            for name in formats
            if name in CONNECTORS and not tables.no_release(name, spark)
        }
        return sorted(needed - set(self.own["connectors"].value() or ()))

    def spec(self) -> dict[str, Any]:
        """Return the query's JSON form."""
        rows = {key: [form.spec() for form in _filled(each)] for key, each in self.rows.items()}
        spec = self.main.spec(**rows)
        drop_empty_schedule(spec)
        return spec

    def body(self) -> dict[str, Any]:
        """Return the API request body that creates this query, or changes it if it exists."""
        data = self.main.cleaned_data
        if not data["home"]:  # an existing query stays where it is
            return {"spec": self.spec()}
        body: dict[str, Any] = {"name": data["name"]}
        if data["home"] == "shared":
            body["application"] = data["application"]
        else:
            if data["team"]:
                body["team"] = data["team"]
            if own := self.own.spec():
                body["application_spec"] = own
        if data["checkpoint"]:
            body["checkpoint"] = data["checkpoint"]
        return {**body, "spec": self.spec()}

    def only_sql(self) -> None:
        """Offer only SQL, to a user who does not have permission to write Python."""
        kinds: Any = self.main.fields["kind"]
        kinds.choices = [choice for choice in kinds.choices if choice[0] == "sql"]

    def reshaped(self, act: str) -> "Bundle":
        """Return the page with one row added ("add-sources") or removed ("remove-tables-1").

        "connect-kafka" adds a connector to the query's driver. The input stays as typed, and is not
        validated yet.
        """
        verb, _, where = act.partition("-")
        which, _, row = where.partition("-")
        rows = {key: [_raw(form) for form in each.forms] for key, each in self.rows.items()}
        if verb == "add" and which in rows:
            rows[which].append({})
        elif verb == "remove" and which in rows and (place := whole(row)) is not None:
            del rows[which][place : place + 1]
        own = _raw(self.own)
        if verb == "connect" and where:
            own["connectors"] = sorted({*(own["connectors"] or ()), where})
        page = unbound(_raw(self.main), rows, own)
        if verb == "add" and which in rows:  # the user continues typing in the new row
            first = next(iter(page.rows[which].forms[-1].fields.values()))
            first.widget.attrs["autofocus"] = True
        return page

    def show(self, problems: Iterable[Problem]) -> None:
        """Show each problem at its field."""
        for problem in problems:
            path = problem.field.removeprefix("spec.")
            key, _, rest = path.partition(".")
            if path.startswith(_OWN):
                self.own.show([problem], prefix=_OWN)
            elif key in self.rows and rest:
                self._show_in_row(key, rest, problem)
            else:
                self.main.show([problem])

    def _show_in_row(self, key: str, path: str, problem: Problem) -> None:
        index, _, rest = path.partition(".")
        filled = _filled(self.rows[key])
        place = whole(index)
        if place is None or place >= len(filled):
            self.main.add_error(None, sentence(problem, f"{key}.{path}"))
            return
        form = filled[place]
        field, about = form.place(rest or "name")
        form.add_error(field, sentence(problem, about))


def _raw(form: forms.BaseForm) -> dict[str, Any]:
    return {name: form[name].value() for name in form.fields}


def _formsets(data: Any = None, **initial: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        key: forms.formset_factory(form, extra=0)(data, initial=initial.get(key), prefix=key)
        for key, form in _row_forms().items()
    }


def unbound(
    main: Mapping[str, Any], rows: Mapping[str, list[dict[str, Any]]], own: Mapping[str, Any]
) -> Bundle:
    """Return a page that shows these values."""
    return Bundle(
        main=QueryForm(initial=dict(main)),
        rows=_formsets(**rows),
        own=ApplicationSpecForm(initial=dict(own), prefix="own"),
    )


def blank() -> Bundle:
    """Return the page for a new query, with an empty first source."""
    trigger = {"kind": "processing_time", "interval": "10 seconds"}
    return of_body({"spec": {"trigger": trigger, "sources": [{}]}})


def posted(data: Any) -> Bundle:
    """Return the page with the input that a browser sent."""
    return Bundle(
        main=QueryForm(data),
        rows=_formsets(data),
        own=ApplicationSpecForm(data, prefix="own"),
    )


def of_body(body: Mapping[str, Any]) -> Bundle:
    """Return the page for a query's complete JSON form, as the API accepts it."""
    spec = body.get("spec") or {}
    asked = {name: body.get(name, "") for name in ("name", "application", "checkpoint", "team")}
    return unbound(
        {
            **initial_of(QueryForm.shape, spec),
            **asked,
            "home": "shared" if asked["application"] else "own",
        },
        {
            key: [initial_of(form.shape, row) for row in spec.get(key) or ()]
            for key, form in _row_forms().items()
        },
        initial_of(ApplicationSpecForm.shape, body.get("application_spec")),
    )


FORM, JSON = "form", "json"


@dataclass(slots=True)
class DefinitionInput:
    """One page's input: the open tab, its fields or its YAML, and the errors in them."""

    tab: str
    bundle: Bundle
    text: str = ""
    problems: list[Problem] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)  # connectors that the application lacks
    failing: Problem | None = None  # the first whose line in the SQL is known

    @classmethod
    def read(cls, data: QueryDict) -> "DefinitionInput":
        """Return the input that a browser sent."""
        if data.get("tab") == JSON:
            return cls(JSON, blank(), text=data.get("json", ""))
        return cls(FORM, posted(data))

    @classmethod
    def of(cls, body: Mapping[str, Any], tab: str = FORM) -> "DefinitionInput":
        """Return the page for an API request body."""
        return cls(tab, of_body(body), text=_dumps(body))

    def body(self) -> dict[str, Any]:
        """Return the API request body; raise `Invalid` if it cannot be parsed at all."""
        if self.tab == JSON:
            return _loads(self.text)
        if not self.bundle.is_valid():
            raise Invalid([])
        return self.bundle.body()

    def acted(self, act: str) -> "DefinitionInput":
        """Return the page after a button that only changes the page: a new row, another tab."""
        if act not in ("to-json", "to-form"):
            return DefinitionInput(FORM, self.bundle.reshaped(act))
        try:
            body = self.body()
        except Invalid as error:
            self.show(error.problems)
            return self
        return DefinitionInput.of(body, JSON if act == "to-json" else FORM)

    def show(self, problems: Iterable[Problem]) -> None:
        """Show each problem next to the field that it concerns."""
        problems = list(problems)
        self.needed = sorted({one.connector for one in problems if one.connector})
        self.failing = next((one for one in problems if one.line is not None), None)
        if self.tab == JSON:
            self.problems += problems
        else:
            self.bundle.show(problems)


@dataclass(frozen=True, slots=True)
class FailingPlace:
    """Where a revision's SQL failed; line and column count from 1."""

    line: int
    column: int
    revision: int


def failing_place(request: HttpRequest, found: QueryDefinition) -> FailingPlace | None:
    """Return the position of the SQL error reported by a failure; None if the URL has none."""
    numbers = [whole(request.GET.get(name)) for name in ("line", "column", "of")]
    line, column, revision = (number or 0 for number in numbers)
    if not (line and column and any(one.number == revision for one in found.revisions)):
        return None
    return FailingPlace(line, column, revision)


def _dumps(body: Mapping[str, Any]) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)


def _loads(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Invalid([Problem("JSON", "", f"cannot be read: {error.msg} at {where}.")]) from error
    if not isinstance(body, dict) or not isinstance(body.get("spec", {}), dict):
        way_out = 'Use an object with "name" and "spec".'
        raise Invalid([Problem("JSON", text[:200], "is not a query definition.", way_out)])
    refuse_characters(body)
    return body
