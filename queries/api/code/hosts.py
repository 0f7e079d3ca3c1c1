"""The git hosts from which definitions can take code: a list that admins maintain."""

from queries.api.admin_objects import endpoints
from queries.api.derived import Body, serializer_for
from queries.models.grants import CodeHost
from queries.services.code.hosts import GIT_HOSTS


@serializer_for(CodeHost, "id=pk host given_at given_by")
class CodeHostBody(Body):
    """A git host from which definitions can take code.

    host: host or host:port for https, or ssh://host.
    """


urlpatterns = endpoints(GIT_HOSTS, CodeHostBody)
