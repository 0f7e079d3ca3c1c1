"""Settings pages for what admins allow: secrets and their bindings, data roots, git hosts."""

from django.conf import settings

from queries.domain.secrets import HolderKind
from queries.selectors.secrets import holder_names, secrets
from queries.services.code.git import GIT_HOSTS
from queries.services.definitions.surroundings import proposals
from queries.services.secrets import BINDINGS, DATA_ROOTS
from queries.views.console.admin_objects import AdminPage

_NEXT_START = "Running queries continue; their next start will be refused."

SECRETS = AdminPage(
    BINDINGS,
    "secrets",
    "settings/secrets/",
    "secrets/list.html",
    added=(
        "{row.secret} is bound to {row.holder_kind} {row.holder}. "
        "Queries that were refused without this binding can be started again."
    ),
    removed="{row.secret} is no longer bound to {row.holder_kind} {row.holder}. " + _NEXT_START,
    remove=("unbind", "secret-unbind"),
    form=lambda typed: {**typed, "hosts": typed["hosts"].splitlines()},
    context=lambda request: {
        "secrets": secrets(),
        "holders": holder_names(),
        "kinds": list(HolderKind),
    },
)
ROOTS = AdminPage(
    DATA_ROOTS,
    "data-roots",
    "settings/data-roots/",
    "secrets/data_roots.html",
    added=("{row.application} can use {row.root}. A running driver must be restarted to use it."),
    removed="{row.application} can no longer use {row.root}. " + _NEXT_START,
    remove=("take", "data-root-take"),
    context=lambda request: {
        "for_all": settings.DATA_ROOTS,
        "proposals": proposals(),
        "applications": holder_names()["application"],
    },
)

urlpatterns = [*SECRETS.urlpatterns, *ROOTS.urlpatterns]


urlpatterns += AdminPage(
    GIT_HOSTS,
    "code-hosts",
    "settings/code-hosts/",
    "code/hosts.html",
    added="Definitions can use code from {row.host}.",
    removed=("Code is no longer fetched from {row.host}. Code that was already fetched is kept."),
    remove=("take", "code-host-take"),
).urlpatterns
