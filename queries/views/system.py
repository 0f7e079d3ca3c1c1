"""The state of Headgate itself: a page, its connectors, health checks, and metrics for
Prometheus.

The health checks are for load balancers and service managers. The page also shows the isolation
of drivers on this host.
"""

import contextlib
import ipaddress
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import rules
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from rest_framework.exceptions import AuthenticationFailed, Throttled

from listeners.loops.backlogs import loop_errors
from queries.domain.errors import Missing
from queries.domain.metrics import METRICS, Metric, MetricKind, MetricSample, samples_of
from queries.domain.sparks import SPARKS, Spark, command, spark_named
from queries.domain.system import REPORTED_PARTS
from queries.roles import ADMINISTER, VIEW
from queries.selectors.definitions.definitions import Connector, connectors, not_installed
from queries.selectors.definitions.sparks import sparks_here
from queries.selectors.metrics import query_figures, system_samples
from queries.selectors.spark_folders import installed_sparks
from queries.services.access.tokens import ByToken
from queries.services.downloads import remove_connector, remove_spark
from queries.services.system.health import system_health
from queries.views.console.shell import actor_and_now, needs, redirect_with_message


@needs(VIEW, "GET")
def system(request: HttpRequest) -> HttpResponse:
    """Show each part of the system with a sentence on its state, and the Spark versions."""
    context = {
        "health": system_health(timezone.now()),
        "sparks": sparks_here(),
        "host": settings.HEADGATE_HOST,
    }
    return render(request, "console/settings/system.html", context)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 while this process serves requests; other parts are not checked."""
    return JsonResponse({"status": "alive"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if users and scripts can be served, else 503 with the parts that do not work.

    The response also lists silent hosts; the other hosts still work.
    """
    health = system_health(timezone.now())
    checks: dict[str, Any] = {
        part.name: {
            "status": part.state,
            "message": part.sentence,
            "since": part.since.isoformat() if part.since else None,
        }
        for part in health.parts
        if part.name in REPORTED_PARTS
    }
    body = {
        "status": "ready" if health.ready else "not ready",
        "at": health.at.isoformat(),
        "checks": checks,
    }
    return JsonResponse(body, status=200 if health.ready else 503)


urlpatterns = [path("settings/system/", system, name="system")]


@dataclass(frozen=True, slots=True)
class SparkSection:
    """The connectors for a Spark version."""

    spark: Spark
    command: str  # that installs that version; "" if this host has it
    connectors: list[Connector]  # installed, or named by an application
    offered: list[Connector]  # that a command installs


@needs(VIEW)
def connector_list(request: HttpRequest) -> HttpResponseBase:
    """List the connectors by Spark version, with jars, checksums and applications."""
    ready, all_connectors = installed_sparks(), connectors()
    named = {(connector.spark, connector.name) for connector in all_connectors}
    sections = [
        SparkSection(
            spark=spark,
            command="" if spark in ready else command(spark),
            connectors=[connector for connector in all_connectors if connector.spark == spark],
            offered=[
                connector
                for connector in not_installed((spark,))
                if (connector.spark, connector.name) not in named
            ],
        )
        for spark in reversed(SPARKS)
    ]
    context: dict[str, Any] = {
        "sections": sections,
        "any": any(connector.ready for connector in all_connectors),
        "host": settings.HEADGATE_HOST,
        "newest": SPARKS[-1],
    }
    return render(request, "downloads/connectors.html", context)


@needs(ADMINISTER, "POST")
def remove_connector_page(request: HttpRequest, spark: str, name: str) -> HttpResponseBase:
    """Remove a connector that nothing uses."""
    remove_connector(name, _version(spark), **actor_and_now(request))
    return redirect_with_message(
        request, f"Removed connector {name} for Spark {spark}.", reverse("connectors")
    )


@needs(ADMINISTER, "POST")
def remove_spark_page(request: HttpRequest, version: str) -> HttpResponseBase:
    """Remove an unused Spark version."""
    remove_spark(_version(version), **actor_and_now(request))
    return redirect_with_message(request, f"Removed Spark {version}.", reverse("system"))


def _version(text: str) -> Spark:
    if (spark := spark_named(text)) is None:
        raise Missing(f"There is no version {text!r} of Spark.")
    return spark


urlpatterns += [
    path("connectors/", connector_list, name="connectors"),
    path(
        "connectors/<str:spark>/<str:name>/remove/", remove_connector_page, name="connector-remove"
    ),
    path("settings/system/sparks/<str:version>/remove/", remove_spark_page, name="spark-remove"),
]


logger = logging.getLogger(__name__)
_loop = loop_errors("metrics", logger)
_FAMILIES = {MetricKind.GAUGE: GaugeMetricFamily, MetricKind.COUNTER: CounterMetricFamily}


@never_cache
@require_safe
@gzip_page
def metrics(request: HttpRequest) -> HttpResponse:
    """Return all samples; respond with 401 without a token, a session or an allowed network."""
    try:
        allowed = _from_allowed_network(request) or _may_view(request)
    except Throttled as error:
        answer = HttpResponse(str(error.detail), status=429, content_type="text/plain")
        answer["Retry-After"] = str(getattr(error, "wait", 0))
        return answer
    if not allowed:
        sentence = (
            "Send the token of a user with view access: `Authorization: Bearer TOKEN`; or ask "
            "an administrator to add your network to HEADGATE_METRICS_NETWORKS.\n"
        )
        headers = {"WWW-Authenticate": "Bearer"}
        return HttpResponse(sentence, status=401, headers=headers, content_type="text/plain")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(_samples()))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)


def _samples() -> Iterator[MetricSample]:
    now = timezone.now()
    yield from system_samples(system_health(now), now=now)
    with contextlib.suppress(DatabaseError):  # reported by headgate_part_up{part="database"}
        for figures in query_figures(now=now):
            samples: list[MetricSample] = []
            with _loop.isolate_errors(f"the samples of {figures.name}"):
                samples = list(samples_of(figures, now=now))
            yield from samples


class _Samples(Collector):
    """Samples by metric, in the catalogue's order."""

    def __init__(self, samples: Iterable[MetricSample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        families: dict[Metric, Family] = {
            metric: _FAMILIES[metric.kind](metric.name, metric.help) for metric in METRICS
        }
        for sample in self._samples:
            labels = dict(zip(sample.metric.labels, sample.labels, strict=True)) | {**sample.extra}
            labels = {name: str(value) for name, value in labels.items()}
            families[sample.metric].add_sample(sample.metric.name, labels, sample.value)
        yield from (family for family in families.values() if family.samples)


def _from_allowed_network(request: HttpRequest) -> bool:
    """Return whether the peer is in an allowed network; behind a proxy, the peer is the proxy."""
    try:
        peer = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return any(
        peer in ipaddress.ip_network(network, strict=False) for network in settings.METRICS_NETWORKS
    )


class _Bearer(ByToken):
    """Accept our tokens under Prometheus' keyword ("Bearer"); REST's own "Token" works too."""

    def authenticate_header(self, request: HttpRequest) -> str:
        return "Bearer"


def _may_view(request: HttpRequest) -> bool:
    user = request.user
    for scheme in (_Bearer(), ByToken()):
        try:
            authenticated = scheme.authenticate(request)
        except AuthenticationFailed:
            return False
        if authenticated is not None:
            user = authenticated[0]
    return bool(user.is_authenticated and rules.has_perm(VIEW, user))


urlpatterns += [path("metrics", metrics, name="metrics")]
