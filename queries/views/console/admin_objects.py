"""Pages for admin objects: the list, the form that adds to it, and the buttons of its rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables

from queries.domain.errors import Conflict, HeadgateError, Invalid
from queries.services.access.admin_objects import AdminObject, Service
from queries.views.console.errors import refused
from queries.views.console.shell import actor_and_now, needs

Typed = dict[str, str]


@dataclass(frozen=True, slots=True)
class AdminPage:
    """The page of a kind of object that admins set up, at one URL unless `new` is set.

    The messages are formatted with the `row`. The template gets the `rows`, the `typed` text, the
    `problems` by field, and `context`; after creating an object with a secret value, `made` and
    `text`.
    """

    kind: AdminObject
    name: str  # of its URL
    route: str  # "settings/code-hosts/"
    template: str
    added: str
    removed: str = ""
    #: The last part of the route of the button that removes an object, and the name of its URL.
    remove: tuple[str, str] | None = None
    new: str = ""  # name of the URL that the form posts to, at "new/", if it has its own
    detail: str = ""  # name of the URL of an object's own page, which is shown after it is added
    conflict: str = ""  # the field beside which a `Conflict` is shown; "": on a page of its own
    fields: tuple[str, ...] = ()  # of the form; by default, those of the kind's own form
    form: Callable[[Typed], dict[str, Any]] = dict  # makes the kind's form from what was typed
    service: Service | None = None  # adds an object; by default, the kind's own service
    context: Callable[[HttpRequest], dict[str, Any]] = lambda request: {}
    #: Returns what the form shows for a request of the page: by default, the request's parameters.
    filled: Callable[[HttpRequest], Typed] | None = None

    @property
    def urlpatterns(self) -> list[URLPattern]:
        """Return the URLs of the page, its form and its buttons."""
        show = needs(self.kind.permission)(self._list)
        add = needs(self.kind.create.permission, "POST")(self._add)

        def page(request: HttpRequest) -> HttpResponseBase:
            return (add if request.method == "POST" and not self.new else show)(request)

        patterns = [path(self.route, never_cache(page), name=self.name)]
        if self.new:
            patterns.append(path(f"{self.route}new/", add, name=self.new))
        if self.remove:
            remove = needs(self.kind.remove.permission, "POST")(self._remove)
            route = f"{self.route}{self.kind.route.partition('/')[2]}{self.remove[0]}/"
            patterns.append(path(route, remove, name=self.remove[1]))
        return patterns

    def show(
        self, request: HttpRequest, typed: Typed, problems: dict[str, Any], **more: Any
    ) -> HttpResponse:
        """Draw the page; with problems, as the answer 422 to its form."""
        context: dict[str, Any] = {"rows": self.kind.rows(request.user), "now": timezone.now()}
        context |= {"typed": typed, "problems": problems, **self.context(request), **more}
        return render(request, self.template, context, status=422 if problems else 200)

    def _typed(self, values: Any) -> Typed:
        form = self.kind.create.form
        names = self.fields or (form.model_fields if form else ())
        return {name: values.get(name, "").strip() for name in names}

    def _list(self, request: HttpRequest) -> HttpResponse:
        typed = self.filled(request) if self.filled else self._typed(request.GET)
        return self.show(request, typed, {})

    @sensitive_variables("made", "text")
    def _add(self, request: HttpRequest) -> HttpResponse:
        typed = self._typed(request.POST)
        form = self.form(typed)
        self.kind.authorize(request.user, form)
        try:
            made = (self.service or self.kind.create.service)(form, **actor_and_now(request))
        except Invalid as error:
            return self.show(request, typed, problems_by_field(error))
        except Conflict as error:
            if not self.conflict:
                raise
            return self.show(request, typed, {self.conflict: error})
        if self.kind.shown_once:
            made, text = made
            return self.show(request, {}, {}, made=made, text=text)
        messages.success(request, self.added.format(row=made))
        return redirect(self.detail, made.name) if self.detail else redirect(self.name)

    def _remove(self, request: HttpRequest, **keys: Any) -> HttpResponse:
        key = keys[self.kind.key[1]]
        try:
            row = self.kind.get(request.user, key)
            self.kind.remove.service(row, **actor_and_now(request))
        except HeadgateError as error:
            if not self.detail:
                raise
            return refused(request, error, reverse(self.detail, args=[key]))
        messages.success(request, self.removed.format(row=row))
        return redirect(self.name)


def problems_by_field(error: Invalid) -> dict[str, Any]:
    """Return the problems by the field of a page's form, which may show parts as one field."""
    return {one.field.partition(".")[0]: one for one in error.problems}
