"""REST endpoints of what admins set up, made from its declarations (`AdminObject`)."""

from contextlib import nullcontext
from typing import Any

from django.urls import URLPattern, path, reverse
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import trials
from queries.api.derived import Body, form_of
from queries.api.methods import Method, Sent, answers, creates, lists
from queries.api.paging import word
from queries.services.access.admin_objects import AdminObject, Service, Verb, description


def endpoints(
    kind: AdminObject, body: type[Body], created: type[Body] | None = None
) -> list[URLPattern]:
    """Return the URLs of a kind of object; `created` is the body of a new one, if it has more.

    The beginning of the route names them: "code-hosts" for all objects, "code-host" for one.
    """
    column, key = kind.key
    root = kind.route.partition("/")[0]
    name = root.removesuffix("s")

    def list_all(view: ApiView) -> Any:
        rows = kind.rows(view.request.user)
        values = {lookup: view.asked(parameter) for parameter, lookup, _ in kind.filters}
        return rows.filter(**{lookup: value for lookup, value in values.items() if value})

    def get(view: ApiView, **keys: Any) -> Any:
        return kind.get(view.request.user, keys[key])

    def post(view: ApiView, sent: Sent) -> Response:
        kind.authorize(view.request.user, sent)
        row, text = kind.create.service(sent, **view.by), ""
        if kind.shown_once:
            row, text = row
        is_new = not kind.created_at or getattr(row, kind.created_at) == view.now
        headers = {"Location": reverse(f"api:{name}", args=[getattr(row, column)])}
        answer = body(row).data
        if kind.shown_once:
            answer, headers["Cache-Control"] = {**answer, kind.shown_once: text}, "no-store"
        return Response(answer, 201 if is_new else 200, headers=headers)

    def put(view: ApiView, sent: Sent, **keys: Any) -> Any:
        row = get(view, **keys)
        return (kind.replace and kind.replace.service(row, sent, **view.by)) or row

    def delete(view: ApiView, **keys: Any) -> None:
        with trials.undone(view) if kind.remove.has_dry_run else nullcontext():
            kind.remove.service(get(view, **keys), **view.by)

    def answer(verb: Verb, method: Method, shown: Any, respond: Any = answers, **more: Any) -> Any:
        form = form_of(verb.form) if verb.form else None
        decorate = respond(verb.operation, shown, form=form, role=verb.permission, **more)
        return decorate(_described(method, verb.service))

    by = "uuid" if column == "uuid" else "pk"
    parameters = [word(parameter, about=about) for parameter, _, about in kind.filters]
    operation = f"list_{root}".replace("-", "_")
    listing = lists(operation, body, by=by, role=kind.permission, parameters=parameters)
    again = body if kind.created_at else None
    get.__doc__ = kind.get_about
    of_one = {
        "get": answers(f"get_{name}".replace("-", "_"), body, role=kind.permission)(get),
        "delete": answer(
            kind.remove,
            delete,
            None,
            **({"parameters": [trials.DRY_RUN]} if kind.remove.has_dry_run else {}),
        ),
    }
    if kind.replace is not None:
        of_one["put"] = answer(kind.replace, put, body)
    of_all = {
        "get": listing(_described(list_all, kind.rows)),
        "post": answer(kind.create, post, created or body, creates, again=again),
    }
    views: list[Any] = [type("AdminView", (ApiView,), methods) for methods in (of_all, of_one)]
    return [
        path(f"{root}/", views[0].as_view(), name=f"{name}s"),
        path(kind.route, views[1].as_view(), name=name),
    ]


def _described(method: Method, service: Service) -> Method:
    method.__doc__ = description(service)
    return method
