"""What of a definition may not start, because an admin has not allowed it."""

from collections.abc import Mapping
from typing import Any

from queries.domain.definitions.parsing import as_json
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Problem, in_words
from queries.domain.secrets.bindings import Holder, application, unbound
from queries.domain.secrets.uses import uses_in, uses_of_brokers
from queries.selectors.secrets import all_bound, bound_to
from queries.selectors.triggers.cores import parsed_or_none
from queries.services.local_roots import conf_problems, data_problems


def unbound_secrets(spec: Mapping[str, Any], holder: Holder) -> list[Problem]:
    """Return a problem for each secret of a definition's JSON form that is not bound.

    Not bound to its application, or not for where it goes.
    """
    uses = uses_in(spec)
    return unbound(uses, bound_to(holder), holder) if uses else []


def unbound_sentence(spec: Mapping[str, Any], name: str) -> str:
    """Return which secrets of a definition are not bound to the application; "" for none."""
    return in_words(unbound_secrets(spec, application(name)))


def query_refusal(spec: Mapping[str, Any], name: str) -> str:
    """Return why a revision of a query may not start now; "" where it may.

    What its saving has allowed may have been taken away since.
    """
    if refused := unbound_sentence(spec, name):
        return refused
    form = parsed_or_none(spec)
    return in_words(data_problems(form, name)) if form is not None else ""


def application_refusal(spec: ApplicationSpec, name: str) -> str:
    """Return why a driver of an application may not be launched now; "" where it may."""
    refused = unbound_sentence(as_json(spec), name)
    return refused or in_words(conf_problems(spec, name))


class BrokerSecrets:
    """Whether Headgate itself may take an application's secrets to its brokers, as bound now."""

    def __init__(self) -> None:
        self._bound = all_bound()

    def refusal(self, brokers: tuple[tuple[str, str], ...], name: str) -> str:
        """Return why not, for a broker set and the application that names it; "" where it may."""
        uses = uses_of_brokers({f"kafka.{key}": value for key, value in brokers})
        holder = application(name)
        return in_words(unbound(uses, self._bound.get(holder, {}), holder))
