"""Settings → Secrets and Settings → Data roots: what admins grant to applications and channels."""

from django.conf import settings

from queries.domain.secrets.bindings import HolderKind
from queries.selectors.secrets import holder_names, secrets
from queries.services.definitions.places_in_use import proposals
from queries.services.secrets.bindings import BINDINGS
from queries.services.secrets.roots import DATA_ROOTS
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
