"""Definition forms derived from their models, with fields for options, secrets and lists.

Each field keeps the text as typed, so that no input is lost when the page is shown again.
`form_field` returns the field for a type; its label and appearance are set in the template.

On the form, a model's field is named after its path, joined by "_" ("sink_format"). A field with a
list of models (a query's sources) is a separate form set, see `query_bundle`. Labels, hints and
widths are set where the template draws the field, with `{% field %}`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from django import forms
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headgate_ground.tolerant import whole
from queries.domain.accepted_values import refuse_characters
from queries.domain.errors import Invalid, Problem
from queries.domain.sparks import SPARKS
from queries.selectors.definitions.definitions import ready_connectors

INPUT = {"class": "form-control form-control-sm", "autocomplete": "off", "spellcheck": "false"}
BOX = {"class": "form-check-input"}


class PairsField(forms.CharField):
    """Lines of `key = value`; the value is a dict of strings in the typed order."""

    def to_python(self, value: Any) -> Any:
        """Return the dict; report the first line that cannot be parsed."""
        pairs: dict[str, str] = {}
        for number_, line in enumerate(str(value or "").splitlines(), start=1):
            if not line.strip():
                continue
            key, equals, rest = line.partition("=")
            key = key.strip()
            if not equals or not key:
                raise forms.ValidationError(
                    f"Line {number_} ({line.strip()[:60]!r}) is not “key = value”."
                )
            if key in pairs:
                raise forms.ValidationError(f"Line {number_} repeats {key!r}. Keep one of them.")
            pairs[key] = rest.strip()
        return pairs

    def prepare_value(self, value: Any) -> Any:
        """Return the lines to show for a dict, or the input as typed."""
        if isinstance(value, Mapping):
            return "\n".join(f"{key} = {held}" for key, held in value.items())
        return value


class LinesField(forms.CharField):
    """One entry per line; the value is a list of the non-empty lines."""

    between = "\n"

    def to_python(self, value: Any) -> Any:
        """Return the entries, stripped."""
        entries = str(value or "").replace("\r", "\n").split(self.between.strip(" "))
        return [entry.strip() for entry in entries if entry.strip()]

    def prepare_value(self, value: Any) -> Any:
        """Return the text to show for a list, or the input as typed."""
        return self.between.join(value) if isinstance(value, list | tuple) else value


class CommasField(LinesField):
    """Comma-separated names."""

    between = ", "


class _ConnectorBoxes(forms.CheckboxSelectMultiple):
    """A checkbox for each available connector, and for each selected one that is not available."""

    def optgroups(self, name: str, value: list[str], attrs: Any = None) -> Any:
        """Return the boxes; an unknown name keeps its box, so that saving does not drop it."""
        known = sorted(
            {one for spark in SPARKS for one in ready_connectors(spark)} | set(filter(None, value))
        )
        self.choices = [(each, each) for each in known]
        return super().optgroups(name, value, attrs)


class ConnectorsField(forms.MultipleChoiceField):
    """Connectors by name; the catalog checks whether each is available."""

    widget = _ConnectorBoxes(BOX)

    def valid_value(self, value: Any) -> bool:
        """Accept every name."""
        return True


class ObjectField(forms.CharField):
    """A JSON object; the value is a dict."""

    def to_python(self, value: Any) -> Any:
        """Return the object; report where the JSON cannot be parsed."""
        typed = str(value or "").strip()
        if not typed:
            return {}
        try:
            read = json.loads(typed)
        except json.JSONDecodeError as error:
            raise forms.ValidationError(
                f"Not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
            ) from error
        if not isinstance(read, dict):
            raise forms.ValidationError("Enter a JSON object: names and values between { and }.")
        try:
            refuse_characters(read)
        except Invalid as error:
            said = [f"{one.field} {one.message} {one.way_out}" for one in error.problems]
            raise forms.ValidationError(said) from None
        return read

    def prepare_value(self, value: Any) -> Any:
        """Return the JSON to show for a dict, or the input as typed."""
        if isinstance(value, Mapping):
            return json.dumps(value, indent=2, ensure_ascii=False) if value else ""
        return value


class TextField(forms.CharField):
    """Text with Unix line endings."""

    def to_python(self, value: Any) -> str:
        """Return the text without the carriage returns that browsers send."""
        return str(super().to_python(value) or "").replace("\r\n", "\n")


_FIELDS: dict[Any, type[forms.Field]] = {
    bool: forms.BooleanField,
    int: forms.IntegerField,
    float: forms.FloatField,
    str: TextField,
    tuple: LinesField,
}


def form_field(kind: Any, **more: Any) -> forms.Field:
    """Return the form field for values of a type; the template sets its appearance."""
    more.setdefault("required", False)
    if get_origin(kind) is Literal:
        widget: forms.Widget = forms.Select({"class": "form-select form-select-sm"})
        choices = [(value, value) for value in get_args(kind)]
        return forms.ChoiceField(choices=choices, widget=widget, **more)
    if get_origin(kind) is dict:
        make: type[forms.Field] = ObjectField if get_args(kind)[1] is Any else PairsField
    else:
        make = _FIELDS[get_origin(kind) or kind]
    if make is forms.BooleanField:
        widget = forms.CheckboxInput(BOX)
    elif issubclass(make, forms.IntegerField):
        widget = forms.TextInput({"class": INPUT["class"], "inputmode": "decimal"})
    else:
        widget = forms.TextInput(INPUT)
    return make(widget=widget, **more)


#: Values of an empty field, which is replaced by the definition's default.
_EMPTY: tuple[Any, ...] = (None, "", [], {})


def models_in(kind: Any) -> tuple[type[BaseModel], ...]:
    """Return the models in a type: the type itself, or the members of a union; otherwise none."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return (kind,)
    if get_origin(kind) is Annotated:
        return models_in(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return tuple(model for one in get_args(kind) for model in models_in(one))
    return ()


def row_model(info: FieldInfo) -> type[BaseModel] | None:
    """Return the model for a field with a list of models; None for other fields."""
    many = get_origin(info.annotation) is tuple and models_in(get_args(info.annotation)[0])
    return many[0] if many else None


def model_of(shape: Any, kind: Any) -> type[BaseModel]:
    """Return the member of a union with this `kind`, or else the first."""
    models = models_in(shape)
    named = (one for one in models if _default(one.model_fields.get("kind")) == kind)
    return next(named, models[0])


def _default(info: FieldInfo | None) -> Any:
    return info.get_default(call_default_factory=True) if info else None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A field in a definition that a user fills in."""

    path: tuple[str, ...]  # in the JSON form
    info: FieldInfo
    values: tuple[str, ...] = ()  # for a choice, those of all members of a union

    def field(self) -> forms.Field:
        """Return its form field."""
        if self.values:
            return form_field(Literal[self.values])
        limits = (getattr(rule, "max_length", None) for rule in self.info.metadata)
        if most := next(filter(None, limits), None):
            return form_field(self.info.annotation, max_length=most)
        return form_field(self.info.annotation)


def _under(name: str, info: FieldInfo, prefix: str) -> str:
    """Return the prefix for a group's fields; "" if the group is always present in one form."""
    return prefix if isinstance(info.annotation, type) else f"{prefix}{name}_"


def leaves(shape: Any, prefix: str = "", path: tuple[str, ...] = ()) -> dict[str, Leaf]:
    """Return the leaves of a model, or of all members of a union, by form field name."""
    found: dict[str, Leaf] = {}
    for model in models_in(shape):
        for name, info in model.model_fields.items():
            at = (*path, info.alias or name)
            values = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
            if models_in(info.annotation):
                found |= leaves(info.annotation, _under(name, info, prefix), at)
            elif row_model(info) is None:
                known = found.setdefault(prefix + name, Leaf(at, info))
                found[prefix + name] = replace(known, values=known.values + values)
    return found


def initial_of(shape: Any, spec: Any, prefix: str = "") -> dict[str, Any]:
    """Return the form fields' values for a definition in JSON form, with defaults filled in."""
    spec = spec if isinstance(spec, Mapping) else {}
    values: dict[str, Any] = {}
    for name, info in model_of(shape, spec.get("kind")).model_fields.items():
        value = spec.get(info.alias or name, spec.get(name))
        if models_in(info.annotation):
            values |= initial_of(info.annotation, value, _under(name, info, prefix))
        elif value is not None:
            values[prefix + name] = value
        elif not info.is_required():
            values[prefix + name] = _default(info)
    return values


def _typed(shape: Any, data: Mapping[str, Any], prefix: str) -> bool:
    """Return whether a field of a nested model differs from its default."""
    return any(
        data.get(name) not in _EMPTY and data[name] != _default(leaf.info)
        for name, leaf in leaves(shape, prefix).items()
    )


def spec_of(shape: Any, data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the JSON form of the input; empty fields take their defaults."""
    spec: dict[str, Any] = {}
    for name, info in model_of(shape, data.get(f"{prefix}kind")).model_fields.items():
        key, field = info.alias or name, prefix + name
        if models_in(info.annotation):
            under = _under(name, info, prefix)
            if _typed(info.annotation, data, under):
                spec[key] = spec_of(info.annotation, data, under)
        elif name == "kind" and len(get_args(info.annotation)) == 1:  # tells members of a union
            spec[key] = _default(info)
        elif field in data and (info.is_required() or data[field] not in _EMPTY):
            spec[key] = data[field]
    return spec


def drop_empty_schedule(spec: dict[str, Any]) -> None:
    """Remove a schedule without anything that starts it: on the form, this means none."""
    given = spec.get("schedule") or {}
    if not any(given.get(name) for name in ("cron", "after", "files")):
        spec.pop("schedule", None)


class SpecForm(forms.Form):
    """The fields of `shape` (a model or a union); fields declared in a subclass come first."""

    shape: ClassVar[Any]

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.leaves = leaves(self.shape)
        for name, leaf in self.leaves.items():
            if name not in self.fields:
                self.fields[name] = leaf.field()

    def spec(self, **rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the definition as typed; `rows` come from the accompanying form sets."""
        return spec_of(self.shape, {**self.cleaned_data, **rows})

    def changed(self, group: str) -> bool:
        """Return whether a field under this key differs from its default or has an error."""
        return any(
            self[name].value() not in ("", None)
            and self.fields[name].has_changed(_default(leaf.info), self[name].value())
            for name, leaf in self.leaves.items()
            if leaf.path[0] == group
        )

    def place(self, path: str) -> tuple[str | None, str]:
        """Return the field that shows a problem at a path, and the part its label leaves out."""
        parts = tuple(path.split("."))
        paths = {
            name: self.leaves[name].path if name in self.leaves else (name,) for name in self.fields
        }
        for length in range(len(parts), 0, -1):
            for name, at in paths.items():
                if at[:length] == parts[:length] and len(at) >= length:
                    return name, ".".join(parts[length:])
        return None, path

    def show(self, problems: Iterable[Problem], *, prefix: str = "") -> None:
        """Show each problem at its field, or at the top of the form if it has no field."""
        for problem in problems:
            field, about = self.place(problem.field.removeprefix(prefix).removeprefix("spec."))
            self.add_error(field, sentence(problem, about))


def rows_of(shape: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the name and the model of each field with a list of models."""
    for model in models_in(shape):
        for name, info in model.model_fields.items():
            if row := row_model(info):
                yield name, row


#: Messages that begin with one of these are complete sentences; others describe the value.
_WHOLE = frozenset({"a", "an", "the", "no", "query", "pool", "application"})


def sentence(problem: Problem, about: str) -> str:
    """Return a problem with its remedy, as a sentence to show at its field.

    `about` is the part of the path that the field's label leaves out: "path" in
    "sources.0.options.path". Row numbers have no meaning and are omitted.
    """
    about = "" if whole(about) is not None else about
    message = problem.message
    telling = 0 < len(problem.value) <= 60 and problem.value not in message
    value = f"“{problem.value}”" if telling else ""
    if message[:1].islower() and message.split(" ", 1)[0] not in _WHOLE:
        subject = " ".join(part for part in (about, value) if part) or "This"
        told = f"{subject} {message}"
    else:
        told = f"{about}: {message}" if about else f"{message[:1].upper()}{message[1:]}"
    return f"{told} {problem.way_out}".strip()
