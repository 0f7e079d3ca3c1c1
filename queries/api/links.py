"""Links in a body: paths in this API, so that scripts never have to guess them."""

from django.urls import reverse

from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.failures import Failure, FailureGroup
from queries.models.history import Operation

Links = dict[str, str]


def query_links(query: Query) -> Links:
    """Return a query's URLs; an archived query does not have any."""
    if query.archived_at is not None:
        return {}
    links = {"self": reverse("api:query", args=[query.name])}
    verbs = "start stop restart runs progress failures revisions exposure async-off lag losses"
    for verb in (*verbs.split(), "go-on", "rollback"):
        links[verb] = reverse(f"api:query-{verb}", args=[query.name])
    links["application"] = reverse("api:application", args=[query.application.name])
    return links


def application_links(application: Application) -> Links:
    """Return an application's URLs."""
    verbs = ("start", "answer") if hasattr(application, "script") else ()
    return {
        "self": reverse("api:application", args=[application.name]),
        **{verb: reverse(f"api:application-{verb}", args=[application.name]) for verb in verbs},
        "stop": reverse("api:application-stop", args=[application.name]),
        "restart": reverse("api:application-restart", args=[application.name]),
        "pools": reverse("api:pools", args=[application.name]),
        "drivers": reverse("api:drivers", args=[application.name]),
    }


def run_links(run: Run) -> Links:
    """Return a run's URLs."""
    links = {
        "self": reverse("api:run", args=[run.pk]),
        "log": reverse("api:run-log", args=[run.pk]),
    }
    if run.query.archived_at is None:
        links["query"] = reverse("api:query", args=[run.query.name])
    return links


def failure_links(failure: Failure) -> Links:
    """Return a failure's URLs."""
    links = {
        "self": reverse("api:failure", args=[failure.pk]),
        "group": reverse("api:failure-group", args=[failure.group_id]),
    }
    if failure.run_id is not None:
        links["run"] = reverse("api:run", args=[failure.run_id])
    return links


def group_links(group: FailureGroup) -> Links:
    """Return a failure group's URLs."""
    links = {"self": reverse("api:failure-group", args=[group.pk])}
    for verb in ("failures", "resolve", "reopen"):
        links[verb] = reverse(f"api:failure-group-{verb}", args=[group.pk])
    return links


def operation_links(operation: Operation) -> Links:
    """Return an operation's URLs."""
    links = {"self": reverse("api:operation", args=[operation.uuid])}
    if operation.cancellable:
        links["cancel"] = reverse("api:operation-cancel", args=[operation.uuid])
    if operation.failure_id is not None:
        links["failure"] = reverse("api:failure", args=[operation.failure_id])
    if operation.parent is not None:
        links["parent"] = reverse("api:operation", args=[operation.parent.uuid])
    if operation.query is not None and operation.query.archived_at is None:
        links["query"] = reverse("api:query", args=[operation.query.name])
    if operation.application is not None and operation.application.archived_at is None:
        links["application"] = reverse("api:application", args=[operation.application.name])
    return links
