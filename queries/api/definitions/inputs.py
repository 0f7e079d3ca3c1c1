"""What the API takes: the shapes of bodies. What makes a definition workable is validation's."""

from typing import Any, ClassVar

from rest_framework import serializers

from queries.api.schema import ApplicationSpecField, ObjectField, QuerySpecField
from queries.api.supervision.application_bodies import ApplicationBody
from queries.api.supervision.query_bodies import QueryBody
from queries.domain.states import StopMode

Form = serializers.Serializer[Any]


class _Object:
    """Refuse anything but a JSON object as a definition."""

    def __call__(self, value: Any) -> None:
        """Raise where `value` is not an object."""
        if not isinstance(value, dict):
            raise serializers.ValidationError("This is not a JSON object.")


_OBJECT = [_Object()]


class QueryCreate(Form):
    """A new query: its name, its definition, and where it runs."""

    name = serializers.CharField(max_length=80)
    spec = QuerySpecField(validators=_OBJECT)
    application = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        help_text="An existing application; without it the query gets its own.",
    )
    application_spec = ApplicationSpecField(
        required=False,
        validators=_OBJECT,
        help_text="The definition of the query's own application; defaults apply without it.",
    )
    checkpoint = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        help_text="An absolute location; without it, a folder below HEADGATE_HOME.",
    )


class QueryReplace(Form):
    """A query's definition, whole. Name, application and checkpoint must be as they are."""

    #: What a get returns beside the definition, so that it can be sent back edited.
    ignored: ClassVar[tuple[str, ...]] = tuple(QueryBody().fields)

    spec = QuerySpecField(validators=_OBJECT)
    name = serializers.CharField(required=False)
    application = serializers.CharField(required=False)
    checkpoint = serializers.CharField(required=False, allow_blank=True)


class QueryMerge(Form):
    """A part of a query's definition, merged as RFC 7396 has it: null removes."""

    spec = ObjectField(validators=_OBJECT)


class ApplicationCreate(Form):
    """A new application for several queries."""

    name = serializers.CharField(max_length=80)
    spec = ApplicationSpecField(required=False, default=dict, validators=_OBJECT)


class ApplicationReplace(Form):
    """An application's definition, whole. The name must be as it is."""

    ignored: ClassVar[tuple[str, ...]] = tuple(ApplicationBody().fields)

    spec = ApplicationSpecField(validators=_OBJECT)
    name = serializers.CharField(required=False)


class ApplicationMerge(Form):
    """A part of an application's definition, merged as RFC 7396 has it: null removes."""

    spec = ObjectField(validators=_OBJECT)


class PoolCreate(Form):
    """A FAIR scheduler pool."""

    name = serializers.CharField(max_length=80)
    weight = serializers.IntegerField(required=False, default=1, min_value=1, max_value=1000)
    min_share = serializers.IntegerField(required=False, default=0, min_value=0, max_value=1000)
    mode = serializers.ChoiceField(["FIFO", "FAIR"], required=False, default="FAIR")


class PoolReplace(PoolCreate):
    """A pool, whole. The name must be as it is."""

    ignored: ClassVar[tuple[str, ...]] = ("application", "queries")

    name = serializers.CharField(required=False)


class Stop(Form):
    """How a stop treats the batch in flight."""

    mode = serializers.ChoiceField(
        [str(mode) for mode in StopMode], required=False, default=str(StopMode.GRACEFUL)
    )


class Nothing(Form):
    """No body, or an empty object."""


class TokenCreate(Form):
    """A new token: for whom, what for, how long."""

    user = serializers.CharField(max_length=150)
    name = serializers.CharField(max_length=80, help_text="What the token is for.")
    days = serializers.IntegerField(required=False, default=90, min_value=1, max_value=366)
