"""REST endpoints for admin objects, generated from their declarations (`AdminObject`)."""

from contextlib import nullcontext
from typing import Any

from django.urls import URLPattern, path, reverse
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.bodies import Body, form_of
from queries.api.definitions import changes
from queries.api.methods import Method, Sent, answers, creates, lists, word
from queries.services.access.admin_objects import AdminObject, Verb, description


def endpoints(
    kind: AdminObject, body: type[Body], created: type[Body] | None = None
) -> list[URLPattern]:
    """Return the URLs of a kind of object; `created` is the body of a new one, if it has more."""
    collection: Any = type("CollectionView", (ApiView,), _of_collection(kind, body, created))
    detail: Any = type("DetailView", (ApiView,), _of_object(kind, body))
    return [
        path(f"{kind.root}/", collection.as_view(), name=f"{kind.name}s"),
        path(kind.route, detail.as_view(), name=kind.name),
    ]


def _of_collection(kind: AdminObject, body: type[Body], created: Any) -> dict[str, Method]:
    """Return the methods that list the objects and create one."""
    column = kind.key[0]

    def get(view: ApiView) -> Any:
        rows = kind.rows(view.request.user)
        values = {lookup: view.query_param(parameter) for parameter, lookup, _ in kind.filters}
        return rows.filter(**{lookup: value for lookup, value in values.items() if value})

    def post(view: ApiView, sent: Sent) -> Response:
        kind.authorize(view.request.user, sent)
        row, text = kind.create.service(sent, **view.by), ""
        if kind.shown_once:
            row, text = row
        is_new = not kind.created_at or getattr(row, kind.created_at) == view.now
        headers = {"Location": reverse(f"api:{kind.name}", args=[getattr(row, column)])}
        answer: Any = body(row).data
        if kind.shown_once:
            answer, headers["Cache-Control"] = {**answer, kind.shown_once: text}, "no-store"
        return Response(answer, 201 if is_new else 200, headers=headers)

    get.__doc__ = description(kind.rows)
    listing = lists(
        f"list_{kind.root}".replace("-", "_"),
        body,
        by="uuid" if column == "uuid" else "pk",
        role=kind.permission,
        parameters=[word(parameter, about=about) for parameter, _, about in kind.filters],
    )
    again = body if kind.created_at else None
    return {
        "get": listing(get),
        "post": _act(kind.create, post, created or body, creates, again=again),
    }


def _of_object(kind: AdminObject, body: type[Body]) -> dict[str, Method]:
    """Return the methods that return, replace and remove an object."""
    key, replace, remove = kind.key[1], kind.replace, kind.remove

    def get(view: ApiView, **keys: Any) -> Any:
        return kind.get(view.request.user, keys[key])

    def put(view: ApiView, sent: Sent, **keys: Any) -> Any:
        row = get(view, **keys)
        return (replace and replace.service(row, sent, **view.by)) or row

    def delete(view: ApiView, **keys: Any) -> None:
        with changes.undone(view) if remove.has_dry_run else nullcontext():
            remove.service(get(view, **keys), **view.by)

    get.__doc__ = kind.get_about
    more = {"parameters": [changes.DRY_RUN]} if remove.has_dry_run else {}
    methods = {
        "get": answers(f"get_{kind.name}".replace("-", "_"), body, role=kind.permission)(get),
        "delete": _act(remove, delete, None, **more),
    }
    return methods | ({"put": _act(replace, put, body)} if replace else {})


def _act(verb: Verb, method: Method, body: Any, respond: Any = answers, **more: Any) -> Method:
    method.__doc__ = description(verb.service)
    form = form_of(verb.form) if verb.form else None
    decorate = respond(verb.operation, body, form=form, role=verb.permission, **more)
    decorated: Method = decorate(method)
    return decorated
