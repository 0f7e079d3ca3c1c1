"""What admins set up, such as teams, git hosts and alert rules: each kind is declared once.

A declaration is in the module with the kind's services. The REST endpoints are made from it
(`queries.api.admin_objects`), and the forms and buttons of its page
(`queries.views.console.admin_objects`). The services record the audit entry themselves, in the
transaction of the change, because manifests and commands call them too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import getdoc
from typing import Any

from django.db.models import QuerySet
from pydantic import BaseModel

from queries.domain.errors import Missing
from queries.roles import ADMINISTER

#: Converter in a route -> the column that holds such a key.
_COLUMNS = {"int": "pk", "str": "name", "uuid": "uuid"}
Service = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Verb:
    """A change of an object.

    `service` gets the row, except to create one, then the form if there is one, `actor` and `now`.
    Its docstring, without paragraphs on what it raises, describes the REST operation.
    """

    operation: str  # the ID of its REST operation
    service: Service
    form: type[BaseModel] | None = None
    permission: str = ADMINISTER
    has_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class AdminObject:
    """A kind of object that admins set up."""

    route: str  # of one object, relative to REST's root: "code-hosts/<int:host_id>/"
    noun: str  # in a message about a missing one: "Host"
    #: Returns the objects that a user can see; its docstring describes the REST operation.
    rows: Callable[[Any], QuerySet[Any]]
    get_about: str  # description of the REST operation that returns one object
    create: Verb
    remove: Verb
    replace: Verb | None = None
    permission: str = ADMINISTER  # to read
    #: The column with the time of creation, if a POST that repeats an existing object returns it.
    created_at: str = ""
    #: Raises `Forbidden` if the user may not create an object from this form.
    authorize: Callable[[Any, Mapping[str, Any]], None] = lambda user, form: None
    shown_once: str = ""  # REST's field for the text that `create` returns with the row
    missing: str = ""  # the message about a missing one, if it must not repeat the key
    filters: tuple[tuple[str, str, str], ...] = ()  # parameter, lookup, description

    @property
    def root(self) -> str:
        """Return the name of all objects in REST: "code-hosts"."""
        return self.route.partition("/")[0]

    @property
    def name(self) -> str:
        """Return the name of one object in REST: "code-host"."""
        return self.root.removesuffix("s")

    @property
    def key(self) -> tuple[str, str]:
        """Return the key's column, and its name in the route."""
        converter, _, name = self.route.partition("<")[2].rstrip(">/").partition(":")
        return _COLUMNS[converter], name

    def get(self, user: Any, key: Any) -> Any:
        """Return the object with a key; raise `Missing` if there is none that the user can see."""
        plain = key.replace("\x00", "") if isinstance(key, str) else key
        row = self.rows(user).filter(**{self.key[0]: plain}).first()
        if row is None:
            raise Missing(self.missing or f"{self.noun} {str(key)[:80]} does not exist.")
        return row


def description(service: Service) -> str:
    """Return the part of a service's docstring that is meant for REST users."""
    paragraphs = (getdoc(service) or "").split("\n\n")
    return "\n\n".join(part for part in paragraphs if not part.startswith("Raises "))


def unpacked(service: Service) -> Service:
    """Return a service that takes a form's fields by name as one that takes the form."""

    @wraps(service)
    def call(*arguments: Any, actor: str, now: Any) -> Any:
        return service(*arguments[:-1], **arguments[-1], actor=actor, now=now)

    return call
