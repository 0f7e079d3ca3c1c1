"""Parts of bodies: fields derived from rows, links, reasons, and the operation that every verb
returns.

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
from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from pydantic import BaseModel
from rest_framework import serializers

from headgate_ground.masking import mask_text
from queries.api.schema import MaskedObject, ObjectField
from queries.domain.reasons import phrase
from queries.domain.states import Completion, OperationOutcome, StepState
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import BecauseField, Failure, FailureGroup, Operation
from queries.selectors.supervision.history import completion


class PhraseField(serializers.CharField):
    """A reason as a phrase; its code is in the field next to it."""

    def to_representation(self, value: Any) -> str:
        """Return the reason's words."""
        return phrase(str(value))


class DetailCodeField(serializers.CharField):
    """The code for the current situation; "" if there is nothing to report."""

    def to_representation(self, value: Any) -> str:
        """Return the code."""
        return value.code.name if value else ""


Links = dict[str, str]


def query_links(query: Query) -> Links:
    """Return a query's URLs; an archived query does not have any."""
    if query.archived_at is not None:
        return {}
    links = {"self": reverse("api:query", args=[query.name])}
    verbs = "start stop restart runs progress failures revisions exposure async-off lag losses"
    for verb in (*verbs.split(), "go-on", "rollback"):
        links[verb] = reverse(f"api:query-{verb}", args=[query.name])
    links["application"] = reverse("api:application", args=[query.application.name])
    return links


def application_links(application: Application) -> Links:
    """Return an application's URLs."""
    verbs = ("start", "answer") if hasattr(application, "script") else ()
    return {
        "self": reverse("api:application", args=[application.name]),
        **{verb: reverse(f"api:application-{verb}", args=[application.name]) for verb in verbs},
        "stop": reverse("api:application-stop", args=[application.name]),
        "restart": reverse("api:application-restart", args=[application.name]),
        "pools": reverse("api:pools", args=[application.name]),
        "drivers": reverse("api:drivers", args=[application.name]),
    }


def run_links(run: Run) -> Links:
    """Return a run's URLs."""
    links = {
        "self": reverse("api:run", args=[run.pk]),
        "log": reverse("api:run-log", args=[run.pk]),
    }
    if run.query.archived_at is None:
        links["query"] = reverse("api:query", args=[run.query.name])
    return links


def failure_links(failure: Failure) -> Links:
    """Return a failure's URLs."""
    links = {
        "self": reverse("api:failure", args=[failure.pk]),
        "group": reverse("api:failure-group", args=[failure.group_id]),
    }
    if failure.run_id is not None:
        links["run"] = reverse("api:run", args=[failure.run_id])
    return links


def group_links(group: FailureGroup) -> Links:
    """Return a failure group's URLs."""
    links = {"self": reverse("api:failure-group", args=[group.pk])}
    for verb in ("failures", "resolve", "reopen"):
        links[verb] = reverse(f"api:failure-group-{verb}", args=[group.pk])
    return links


def operation_links(operation: Operation) -> Links:
    """Return an operation's URLs."""
    links = {"self": reverse("api:operation", args=[operation.uuid])}
    if operation.cancellable:
        links["cancel"] = reverse("api:operation-cancel", args=[operation.uuid])
    if operation.failure_id is not None:
        links["failure"] = reverse("api:failure", args=[operation.failure_id])
    if operation.parent is not None:
        links["parent"] = reverse("api:operation", args=[operation.parent.uuid])
    if operation.query is not None and operation.query.archived_at is None:
        links["query"] = reverse("api:query", args=[operation.query.name])
    if operation.application is not None and operation.application.archived_at is None:
        links["application"] = reverse("api:application", args=[operation.application.name])
    return links


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


#: The choices of an operation's outcome; the API document names them after the operation.
OUTCOMES = [str(outcome) for outcome in OperationOutcome if outcome]


class MaskedText(serializers.CharField):
    """Text from a driver, with anything that looks like a secret masked."""

    def to_representation(self, value: Any) -> str:
        """Return the text, masked."""
        return mask_text(str(value))


class OutcomeField(serializers.ChoiceField):
    """How an operation or a step ended; null while it is in progress."""

    def to_representation(self, value: Any) -> Any:
        """Return the outcome or None."""
        return value or None


@described
class OperationStepBody(Body):
    """One step of a multi-step operation.

    detail: What it is waiting for, or why it failed.
    """

    name = serializers.CharField()
    state = serializers.ChoiceField([str(state) for state in StepState])
    at = serializers.CharField(allow_null=True)
    detail = MaskedText(default="")


@serializer_for(
    Operation,
    "id=uuid verb query=query.name application=application.name outcome detail detail_code actor "
    "created_at deadline ended_at failure=failure_id steps arguments result "
    "parent=parent.uuid cancellable links",
    links=operation_links,
)
class OperationBody(Body):
    """A request by a user or by CI, tracked to its end.

    outcome: Null while it is in progress. failure: The failure that ended it; null if there is
    none. arguments: The arguments of the verb. result: The results of its steps. parent: The
    operation that this one is a step of. cancellable: Whether it can be cancelled: it has not
    passed its point of no return.
    """

    outcome = OutcomeField(OUTCOMES, allow_null=True)
    detail = MaskedText()
    detail_code = DetailCodeField(source="detail")
    steps = OperationStepBody(many=True)
    arguments = MaskedObject()
    result = MaskedObject()

    def get_cancellable(self, operation: Operation) -> bool:
        """Return whether it can be cancelled now."""
        return operation.cancellable


@described
class OperationDetailBody(OperationBody):
    """An operation and, for a start or restart of a query, how its work ended.

    completion: Null while the query runs or is restarted automatically; COMPLETED if it has read
    all available data, as with the triggers available_now and once.
    """

    completion = serializers.SerializerMethodField()

    @extend_schema_field(  # type: ignore[untyped-decorator]
        serializers.ChoiceField([str(end) for end in Completion], allow_null=True)
    )
    def get_completion(self, operation: Operation) -> Completion | None:
        """Return how the query's work has ended; None while it continues."""
        return completion(operation)


class OperationsBody(Body):
    """The operations that one request started."""

    results = OperationBody(many=True)
