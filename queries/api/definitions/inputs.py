"""The forms of request bodies; validation then checks whether a definition can work."""

from typing import Any, ClassVar

from rest_framework import serializers

from queries.api.definitions.application_bodies import ApplicationBody
from queries.api.definitions.query_bodies import QueryBody
from queries.api.derived import described, form_for
from queries.api.schema import ApplicationSpecField, ObjectField, QuerySpecField
from queries.domain.definitions.spec import PoolSpec
from queries.domain.states import StopMode
from queries.domain.validation.query_rules import LONGEST_NAME

Form = serializers.Serializer[Any]


@described
class QueryCreate(Form):
    """A new query: its name, its definition, and where it runs.

    application: An existing application; if omitted, the query gets its own.
    application_spec: The definition of the query's own application; if omitted, defaults apply.
    team: The team that will own the query's own application; if omitted, your only team.
    checkpoint: An absolute location; if omitted, a folder in HEADGATE_HOME.
    """

    name = serializers.CharField(max_length=LONGEST_NAME)
    spec = QuerySpecField()
    application = serializers.CharField(allow_blank=True, default="")
    application_spec = ApplicationSpecField(required=False)
    checkpoint = serializers.CharField(allow_blank=True, default="")
    team = serializers.CharField(allow_blank=True, default="")


class QueryReplace(Form):
    """A query's complete definition. Name, application and checkpoint cannot change."""

    #: Additional fields returned by GET, so that the response can be edited and sent back.
    ignored: ClassVar[tuple[str, ...]] = tuple(QueryBody().fields)

    spec = QuerySpecField()
    name = serializers.CharField(required=False)
    application = serializers.CharField(required=False)
    checkpoint = serializers.CharField(required=False, allow_blank=True)


class QueryMerge(Form):
    """A part of a query's definition, merged as in RFC 7396: null removes a field."""

    spec = ObjectField()


@described
class ApplicationCreate(Form):
    """A new application for several queries.

    team: The team that will own it; if omitted, your only team.
    """

    name = serializers.CharField(max_length=LONGEST_NAME)
    spec = ApplicationSpecField(default=dict)
    team = serializers.CharField(allow_blank=True, default="")


class ApplicationReplace(Form):
    """An application's complete definition. The name cannot change."""

    ignored: ClassVar[tuple[str, ...]] = tuple(ApplicationBody().fields)

    spec = ApplicationSpecField()
    name = serializers.CharField(required=False)


class ApplicationMerge(Form):
    """A part of an application's definition, merged as in RFC 7396: null removes a field."""

    spec = ObjectField()


@form_for(PoolSpec)
class PoolCreate(Form):
    """A FAIR scheduler pool."""

    name = serializers.CharField(max_length=80)


class PoolReplace(PoolCreate):
    """A complete pool. The name cannot change."""

    ignored: ClassVar[tuple[str, ...]] = ("application", "queries")

    name = serializers.CharField(required=False)


STOP_MODES = [str(mode) for mode in StopMode]


class Stop(Form):
    """How a stop treats the batch in flight."""

    mode = serializers.ChoiceField(STOP_MODES, default=str(StopMode.GRACEFUL))


@described
class Start(Form):
    """How a query starts on its newest revision.

    accept_state_change: Start even if its state changes meaning; otherwise 409.
    """

    accept_state_change = serializers.BooleanField(default=False)


@described
class StartWithParams(Start):
    """How one query starts on its newest revision.

    accept_state_change: Start even if its state changes meaning; otherwise 409.
    params: Values for parameters of the definition. If omitted, a start uses the defaults, and a
    restart keeps the values.
    read_text: Read texts in params as the types of the defaults: "3" as 3.
    """

    params = ObjectField(allow_null=True, default=None)
    read_text = serializers.BooleanField(default=False)


@described
class Answer(Form):
    """Which missing query, if any, a script's new query is.

    identity: The identity in the question, because the question may have changed since.
    same_as: The name of the missing query that it is; empty if it is a new query.
    """

    identity = serializers.CharField(max_length=1200)
    same_as = serializers.CharField(max_length=160, allow_blank=True)
