"""`GET /metrics`: metrics for queries and for Headgate itself, in Prometheus' format."""

import contextlib
import ipaddress
import logging
from collections.abc import Iterable, Iterator

import rules
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.urls import path
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

from listeners.loops.troubles import loop_errors
from queries.domain.metrics.catalogue import METRICS, Metric, MetricKind
from queries.domain.metrics.samples import MetricSample, samples_of
from queries.roles import VIEW
from queries.selectors.metrics.queries import query_figures
from queries.selectors.metrics.system import system_samples
from queries.services.access.by_token import ByToken
from queries.services.system.health import system_health

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


urlpatterns = [path("metrics", metrics, name="metrics")]
