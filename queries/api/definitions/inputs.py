"""What the API takes: the shapes of bodies. What makes a definition workable is validation's."""

from typing import Any, ClassVar

from rest_framework import serializers

from queries.api.definitions.application_bodies import ApplicationBody
from queries.api.definitions.query_bodies import QueryBody
from queries.api.derived import described, takes
from queries.api.schema import ApplicationSpecField, ObjectField, QuerySpecField
from queries.domain.definitions.spec import PoolSpec
from queries.domain.states import StopMode
from queries.models.tokens import Scope

Form = serializers.Serializer[Any]


@described
class QueryCreate(Form):
    """A new query: its name, its definition, and where it runs.

    application: An existing application; without it the query gets its own.
    application_spec: The definition of the query's own application; defaults apply without it.
    team: Of the query's own application; without it, your one team.
    checkpoint: An absolute location; without it, a folder below HEADGATE_HOME.
    """

    name = serializers.CharField(max_length=80)
    spec = QuerySpecField()
    application = serializers.CharField(allow_blank=True, default="")
    application_spec = ApplicationSpecField(required=False)
    checkpoint = serializers.CharField(allow_blank=True, default="")
    team = serializers.CharField(allow_blank=True, default="")


class QueryReplace(Form):
    """A query's definition, whole. Name, application and checkpoint must be as they are."""

    #: What a get returns beside the definition, so that it can be sent back edited.
    ignored: ClassVar[tuple[str, ...]] = tuple(QueryBody().fields)

    spec = QuerySpecField()
    name = serializers.CharField(required=False)
    application = serializers.CharField(required=False)
    checkpoint = serializers.CharField(required=False, allow_blank=True)


class QueryMerge(Form):
    """A part of a query's definition, merged as RFC 7396 has it: null removes."""

    spec = ObjectField()


@described
class ApplicationCreate(Form):
    """A new application for several queries.

    team: Whose it is; without it, your one team.
    """

    name = serializers.CharField(max_length=80)
    spec = ApplicationSpecField(default=dict)
    team = serializers.CharField(allow_blank=True, default="")


class ApplicationReplace(Form):
    """An application's definition, whole. The name must be as it is."""

    ignored: ClassVar[tuple[str, ...]] = tuple(ApplicationBody().fields)

    spec = ApplicationSpecField()
    name = serializers.CharField(required=False)


class ApplicationMerge(Form):
    """A part of an application's definition, merged as RFC 7396 has it: null removes."""

    spec = ObjectField()


@takes(PoolSpec)
class PoolCreate(Form):
    """A FAIR scheduler pool."""

    name = serializers.CharField(max_length=80)


class PoolReplace(PoolCreate):
    """A pool, whole. The name must be as it is."""

    ignored: ClassVar[tuple[str, ...]] = ("application", "queries")

    name = serializers.CharField(required=False)


STOP_MODES = [str(mode) for mode in StopMode]


class Stop(Form):
    """How a stop treats the batch in flight."""

    mode = serializers.ChoiceField(STOP_MODES, default=str(StopMode.GRACEFUL))


@described
class Answer(Form):
    """What a query is that came in a script while others went.

    identity: That of the question, which may be another by now.
    same_as: The name of the missing query that it is; empty: another one.
    """

    identity = serializers.CharField(max_length=1200)
    same_as = serializers.CharField(max_length=160, allow_blank=True)


@described
class TokenCreate(Form):
    """A new token: its user, its purpose, its limits, its lifetime.

    name: What the token is for.
    scope: What it may do at most; its user's role limits it further.
    team: It acts on this team's applications alone; with scope operate or author.
    applications: It acts on these alone; with scope operate or author.
    """

    user = serializers.CharField(max_length=150)
    name = serializers.CharField(max_length=80)
    days = serializers.IntegerField(default=90, min_value=1, max_value=366)
    scope = serializers.ChoiceField([str(one) for one in Scope], default=str(Scope.AUTHOR))
    team = serializers.CharField(allow_blank=True, default="", max_length=63)
    applications = serializers.ListField(
        child=serializers.CharField(max_length=80), default=list, max_length=100
    )
