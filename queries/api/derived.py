"""Bodies that mirror a row: fields and their types are derived from a model or dataclass.

`@shows(Run, "id=pk epoch driver.host")` gives a serializer the named fields, in this order; fields
that the class itself declares take precedence. Fields are described in the class's docstring, one
per line: "epoch: The number of this start." Other lines describe the body.
"""

import inspect
from collections.abc import Callable, Iterable
from datetime import date, datetime
from enum import StrEnum
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from pydantic import BaseModel
from rest_framework import serializers

from queries.api.schema import ObjectField
from queries.models.because import BecauseField

Body = serializers.Serializer[Any]
S = TypeVar("S", bound=type[Body])

_PLAIN: dict[Any, Any] = {
    str: serializers.CharField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    bool: serializers.BooleanField,
    datetime: serializers.DateTimeField,
    date: serializers.DateField,
    UUID: serializers.UUIDField,
    dict: ObjectField,
}
#: Field types of columns, most specific first.
_COLUMNS: dict[Any, Any] = {
    models.DateTimeField: datetime,
    models.DateField: date,
    models.BooleanField: bool,
    models.UUIDField: UUID,
    models.FloatField: float,
    models.IntegerField: int,
    BecauseField: str,
    models.JSONField: dict,
    models.Field: str,
}
#: The body for each row class that has one, for fields that contain such rows.
_BODIES: dict[Any, type[Body]] = {}


def described(body: S) -> S:
    """Give a serializer's fields the descriptions in its docstring."""
    text, about = [], {}
    for line in (inspect.getdoc(body) or "").split("\n"):
        name, colon, help_text = line.partition(": ")
        if colon and name in body._declared_fields:
            about[name] = help_text
        else:
            text.append(line)
    body.__doc__ = "\n".join(text).strip()
    fields: dict[str, Any] = dict(body._declared_fields)
    for name, help_text in about.items():
        fields[name]._kwargs["help_text"] = help_text
    return body


def serializer_for(
    row: Any, names: str, **more: type[StrEnum] | Callable[[Any], Any]
) -> Callable[[S], S]:
    """Give a serializer the named fields of a row.

    "name" is the row's attribute with this name, "a.name" an attribute of `a`, and "name=a.b" shows
    that attribute as `name`; a nullable attribute on the path makes the field nullable. A method
    `get_name` creates its field. `more` contains the choices for a text column, or a function that
    makes a field from the row.
    """

    def fill(body: S) -> S:
        fields: dict[str, Any] = {}
        for name, made in more.items():
            if not isinstance(made, type):
                setattr(body, f"get_{name}", staticmethod(made))
        for token in names.split():
            name, _, source = token.rpartition("=")
            name = name or source.rpartition(".")[2]
            if name in body._declared_fields:
                fields[name] = body._declared_fields[name]
            elif hasattr(body, f"get_{name}"):
                fields[name] = serializers.SerializerMethodField()
            else:
                options = {} if name == source else {"source": source}
                fields[name] = _field(row, source, more.get(name), options)
        body._declared_fields = fields
        _BODIES[row] = body
        return described(body)

    return fill


#: Limits of a model's field -> the corresponding names for a serializer's field.
_LIMITS = {"ge": "min_value", "le": "max_value", "max_length": "max_length"}


#: The serializer for each form that has one.
_FORMS: dict[type[BaseModel], type[Body]] = {}


def form_for(model: type[BaseModel]) -> Callable[[S], S]:
    """Give a serializer the fields of a definition's model, with their defaults and limits."""

    def fill(form: S) -> S:
        fields: dict[str, Any] = {}
        for name, info in model.model_fields.items():
            options = _limits(info.annotation, info.metadata)
            if not info.is_required():
                default = info.default_factory or info.default
                is_form = isinstance(default, type) and issubclass(default, BaseModel)
                options |= {"required": False, "default": dict if is_form else default}
                if default == "":
                    options["allow_blank"] = True
            fields[name] = form._declared_fields.get(name) or _field(model, name, None, options)
        form._declared_fields = fields
        _FORMS[model] = form
        return form

    return fill


def _limits(kind: Any, rules: Iterable[Any] = ()) -> dict[str, Any]:
    """Return a field's limits, and the field of a list's entries, if they have any, as "child"."""
    limits = {_LIMITS[s]: getattr(rule, s) for rule in rules for s in _LIMITS if hasattr(rule, s)}
    for part in get_args(kind):
        if get_origin(part) is Annotated:
            nested = [getattr(rule, "metadata", [rule]) for rule in part.__metadata__]
            inner = _limits(None, chain.from_iterable(nested))
            is_list = get_origin(kind) is list
            limits |= {"child": _PLAIN[get_args(part)[0]](**inner)} if is_list else inner
    return limits


def form_of(model: type[BaseModel]) -> type[Body]:
    """Return the serializer of a form; unless one was declared, with the form's own docstring."""
    if model not in _FORMS:
        named = {"__doc__": model.__doc__, "ignored": getattr(model, "ignored", ())}
        described(form_for(model)(type(model.__name__, (Body,), named)))
    return _FORMS[model]


def _field(row: Any, source: str, words: Any, options: dict[str, Any]) -> Any:
    kind, null = row, False
    for step in source.split("."):
        if null:
            options["default"] = None  # the path may end before the value
        kind, ends = _step(kind, step)
        null = null or ends
    if null:
        options["allow_null"] = True
    kind = words or kind
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return serializers.ChoiceField([str(choice) for choice in kind], **options)
    if get_origin(kind) is Literal:
        return serializers.ChoiceField(list(get_args(kind)), **options)
    if get_origin(kind) in (list, tuple):
        inner = get_args(kind)[0]
        if inner in _BODIES:
            return _BODIES[inner](many=True, **options)
        return serializers.ListField(**{"child": _plain(inner)(), **options})
    if kind in _BODIES:
        return _BODIES[kind](**options)
    return _plain(kind)(**options)


def _plain(kind: Any) -> Any:
    is_form = isinstance(kind, type) and issubclass(kind, BaseModel)
    return ObjectField if is_form else _PLAIN[get_origin(kind) or kind]


def _step(owner: Any, name: str) -> tuple[Any, bool]:
    """Return the type of an owner's attribute, and whether it can be null."""
    if isinstance(owner, type) and issubclass(owner, models.Model):
        try:
            return _column(owner, name)
        except FieldDoesNotExist:
            pass
    attribute = getattr(owner, name, None)
    if isinstance(attribute, property):
        return _without_none(get_type_hints(attribute.fget)["return"])
    return _without_none(get_type_hints(owner)[name])


def _column(owner: type[models.Model], name: str) -> tuple[Any, bool]:
    meta = owner._meta
    field: Any = meta.pk if name == "pk" else meta.get_field(name)
    if field.is_relation and name == field.name:
        return field.related_model, field.null
    field = field.target_field if field.is_relation else field
    kind = next(_COLUMNS[base] for base in _COLUMNS if isinstance(field, base))
    return kind, meta.get_field(name).null if name != "pk" else False


def _without_none(kind: Any) -> tuple[Any, bool]:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    left = [member for member in kinds if member is not type(None)]
    return left[0], len(left) < len(kinds)
