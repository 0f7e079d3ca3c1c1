"""Grants by admins: secrets for applications and channels, data roots for applications."""

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.methods import Sent, answers, creates, lists
from queries.api.paging import shown
from queries.api.secrets import bodies
from queries.models.grants import GivenRoot, SecretBinding
from queries.roles import ADMINISTER
from queries.selectors.first_or_missing import found
from queries.selectors.secrets import secrets
from queries.services.definitions.places_in_use import proposals
from queries.services.secrets import bindings, roots


class SecretsView(ApiView):
    """All secrets, sorted by name."""

    @answers("list_secrets", bodies.SecretsBody, role=ADMINISTER)
    def get(self) -> Response:
        """List secrets, sorted by name, with their uses and bindings; admins only."""
        return Response(shown(secrets(), bodies.SecretBody))


def _binding(number: int) -> SecretBinding:
    rows = SecretBinding.objects.filter(pk=number, taken_at=None)
    return found(rows, f"Binding {number} does not exist.")


class BindingsView(ApiView):
    """All bindings of secrets."""

    @lists("list_secret_bindings", bodies.BindingBody, role=ADMINISTER)
    def get(self) -> QuerySet[SecretBinding]:
        """List secret bindings, newest first; admins only."""
        return SecretBinding.objects.filter(taken_at=None)

    @creates(
        "bind_secret",
        bodies.BindingBody,
        bodies.BindingForm,
        role=ADMINISTER,
        again=bodies.BindingBody,
    )
    def post(self, sent: Sent) -> Response:
        """Bind a secret, replacing its previous binding to the same holder.

        An identical binding is returned unchanged, with 200.
        """
        row = bindings.bind(sent, **self.by)
        location = reverse("api:secret-binding", args=[row.pk])
        status = 201 if row.given_at == self.now else 200
        return Response(bodies.BindingBody(row).data, status, headers={"Location": location})


class BindingView(ApiView):
    """One secret binding."""

    @answers("get_secret_binding", bodies.BindingBody, role=ADMINISTER)
    def get(self, binding_id: int) -> SecretBinding:
        """Return a binding; admins only."""
        return _binding(binding_id)

    @answers("unbind_secret", None, role=ADMINISTER)
    def delete(self, binding_id: int) -> None:
        """Remove a binding: running queries continue, but their next start is rejected."""
        bindings.unbind(_binding(binding_id), **self.by)


class ProposalsView(ApiView):
    """Proposed roots."""

    @answers("list_data_root_proposals", bodies.ProposalsBody, role=ADMINISTER)
    def get(self) -> dict[str, Any]:
        """List the roots that would allow locations now outside all roots; admins only."""
        return {"results": proposals()}


def _root(number: int) -> GivenRoot:
    rows = GivenRoot.objects.filter(pk=number, taken_at=None)
    return found(rows, f"Root {number} does not exist.")


class RootsView(ApiView):
    """All data roots assigned to single applications."""

    @lists("list_data_roots", bodies.RootBody, role=ADMINISTER)
    def get(self) -> QuerySet[GivenRoot]:
        """List the roots assigned to applications, newest first; admins only."""
        return GivenRoot.objects.filter(taken_at=None)

    @creates(
        "give_data_root", bodies.RootBody, bodies.RootForm, role=ADMINISTER, again=bodies.RootBody
    )
    def post(self, sent: Sent) -> Response:
        """Assign a folder or URL prefix to an application; an existing assignment returns 200."""
        row = roots.give_root(sent, **self.by)
        location = reverse("api:data-root", args=[row.pk])
        status = 201 if row.given_at == self.now else 200
        return Response(bodies.RootBody(row).data, status, headers={"Location": location})


class RootView(ApiView):
    """One of an application's data roots."""

    @answers("get_data_root", bodies.RootBody, role=ADMINISTER)
    def get(self, root_id: int) -> GivenRoot:
        """Return a root; admins only."""
        return _root(root_id)

    @answers("take_data_root", None, role=ADMINISTER)
    def delete(self, root_id: int) -> None:
        """Remove a root: running queries continue, but their next start is rejected."""
        roots.take_root(_root(root_id), **self.by)
