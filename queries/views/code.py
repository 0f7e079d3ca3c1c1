"""Settings → Git hosts: the hosts from which definitions can take code."""

from queries.services.code.hosts import GIT_HOSTS
from queries.views.console.admin_objects import AdminPage

urlpatterns = AdminPage(
    GIT_HOSTS,
    "code-hosts",
    "settings/code-hosts/",
    "code/hosts.html",
    added="Definitions can use code from {row.host}.",
    removed=("Code is no longer fetched from {row.host}. Code that was already fetched is kept."),
    remove=("take", "code-host-take"),
).urlpatterns
