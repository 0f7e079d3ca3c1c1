"""Find queries and applications that cannot start because an admin has not allowed them to."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from queries.domain.definitions.configuration import reach_problems
from queries.domain.definitions.data_roots import option_places
from queries.domain.definitions.parsing import as_json
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Problem, in_words
from queries.domain.secrets.bindings import Bound, SecretHolder, application, unbound
from queries.domain.secrets.hosts import ANYWHERE, allows, servers
from queries.domain.secrets.uses import s3_endpoints, uses_in, uses_of_brokers
from queries.domain.validation.query_rules import option_reach
from queries.models.applications import Application
from queries.selectors.secrets import all_bound, bound_to
from queries.selectors.triggers.cores import newest_application_spec, parsed_or_none
from queries.services.local_references import length_problem
from queries.services.local_roots import conf_problems, data_problems, outside_of

#: A source's `kafka.*` options, with references unresolved.
Brokers = tuple[tuple[str, str], ...]


def unbound_secrets(
    spec: Mapping[str, Any], holder: SecretHolder, around: Mapping[str, Any] | None = None
) -> list[Problem]:
    """Return a problem for each secret in a definition's JSON form that cannot be used.

    A secret must be bound to its application, and to the host that it is sent to. It may also be
    too short, if it has changed since it was bound. `around` is the definition of a query's
    application, if the query has one.
    """
    uses = uses_in(spec, around)
    if not uses:
        return []
    short = (length_problem(use.field, use.secret) for use in uses)
    return [*unbound(uses, bound_to(holder), holder), *(one for one in short if one)]


def unbound_sentence(
    spec: Mapping[str, Any], name: str, around: Mapping[str, Any] | None = None
) -> str:
    """Return a sentence naming the secrets that are not bound to the application; "" if all are."""
    return in_words(unbound_secrets(spec, application(name), around))


def query_refusal(
    spec: Mapping[str, Any], name: str, around: Mapping[str, Any] | None = None
) -> str:
    """Return why a revision of a query cannot start now; "" if it can.

    Permissions that existed when it was saved may have been revoked since. `around` is the
    definition of the application that its driver was launched with; by default, the newest one.
    """
    if around is None and s3_endpoints(spec.get("conf")):
        around = _newest(name)
    if refused := unbound_sentence(spec, name, around):
        return refused
    form = parsed_or_none(spec)
    if form is None:
        return ""
    reach = [*option_reach(form), *reach_problems(form.conf)]
    return _by_field(reach) or in_words(data_problems(form, name))


def _newest(name: str) -> Mapping[str, Any]:
    row = Application.objects.filter(name=name, archived_at=None).first()
    return as_json(newest_application_spec(row)) if row is not None else {}


def application_refusal(spec: ApplicationSpec, name: str) -> str:
    """Return why a driver of an application cannot be launched now; "" if it can."""
    refused = unbound_sentence(as_json(spec), name)
    return refused or _by_field(reach_problems(spec.conf)) or in_words(conf_problems(spec, name))


def files_outside(options: Mapping[str, str], name: str) -> str:
    """Return a sentence naming a client's files outside the application's roots; "" if none are."""
    return in_words(outside_of(option_places("options", options), name))


def _by_field(problems: list[Problem]) -> str:
    return " ".join(problem.sentence() for problem in problems)


def may_ask(brokers: Brokers, bound: Bound) -> bool:
    """Return whether an admin has allowed every server of a broker set.

    A server is allowed by HEADGATE_BROKER_HOSTS or by a binding of the application: if a secret may
    be sent to a server, so may a request. A binding for any host applies to the author's code, not
    to Headgate.
    """
    patterns = [*settings.BROKER_HOSTS]
    patterns += [one for hosts in bound.values() for one in hosts if one != ANYWHERE]
    places = servers(dict(brokers).get("bootstrap.servers", ""))
    return all(any(allows(pattern, place) for pattern in patterns) for place in places)


class BrokerSecrets:
    """Decide whether Headgate may query an application's brokers, given its current bindings.

    Headgate's own client opens the certificate files named in the options, so they must be in the
    application's roots.
    """

    def __init__(self) -> None:
        self._bound = all_bound()

    def refusal(self, brokers: Brokers, name: str, *, started: bool = True) -> str:
        """Return why Headgate cannot query an application's broker set; "" if it can.

        `started` says whether a run has used the broker set, so that a driver has already queried
        it.
        """
        options = {f"kafka.{key}": value for key, value in brokers}
        holder = application(name)
        found = unbound(uses_of_brokers(options), self._bound.get(holder, {}), holder)
        refused = in_words(found) or files_outside(options, name)
        if refused or started or may_ask(brokers, self._bound.get(holder, {})):
            return refused
        return (
            f"{dict(brokers).get('bootstrap.servers', '')} is not contacted until the query "
            "has been started. Start it, or ask an admin to add the host to "
            "HEADGATE_BROKER_HOSTS."
        )
