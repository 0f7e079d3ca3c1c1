"""`GET /metrics`: what Headgate knows of queries and of itself, as Prometheus reads it."""

import contextlib
import ipaddress
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

from controlplane.health.system import system_health
from queries.domain.metrics.catalogue import METRICS, Metric, MetricKind
from queries.domain.metrics.samples import Sample, samples_of
from queries.roles import VIEW
from queries.selectors.metrics.queries import query_figures
from queries.selectors.metrics.system import system_samples
from queries.services.access.by_token import ByToken

_FAMILIES = {MetricKind.GAUGE: GaugeMetricFamily, MetricKind.COUNTER: CounterMetricFamily}


@never_cache
@require_safe
@gzip_page
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with all samples, or 401: it takes a token, a session, or an allowed network."""
    try:
        allowed = _from_allowed_network(request) or _may_view(request)
    except Throttled as error:
        answer = HttpResponse(str(error.detail), status=429, content_type="text/plain")
        answer["Retry-After"] = str(getattr(error, "wait", 0))
        return answer
    if not allowed:
        sentence = (
            "Send the token of a user who may view: `Authorization: Bearer TOKEN`; or have an "
            "administrator name your network in HEADGATE_METRICS_NETWORKS.\n"
        )
        headers = {"WWW-Authenticate": "Bearer"}
        return HttpResponse(sentence, status=401, headers=headers, content_type="text/plain")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(_samples()))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)


def _samples() -> Iterator[Sample]:
    now = timezone.now()
    yield from system_samples(system_health(now), now=now)
    with contextlib.suppress(DatabaseError):  # headgate_part_up{part="database"} tells of it
        for figures in query_figures(now=now):
            yield from samples_of(figures, now=now)


class _Samples(Collector):
    """Samples by metric, in the order of the catalogue."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        families: dict[Metric, Family] = {
            one: _FAMILIES[one.kind](one.name, one.help) for one in METRICS
        }
        for sample in self._samples:
            labels = dict(zip(sample.metric.labels, sample.labels, strict=True)) | {**sample.extra}
            families[sample.metric].add_sample(sample.metric.name, labels, sample.value)
        yield from (family for family in families.values() if family.samples)


def _from_allowed_network(request: HttpRequest) -> bool:
    """Tell whether the peer is in an allowed network; a proxy's address is the proxy's own."""
    try:
        peer = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return any(peer in ipaddress.ip_network(one, strict=False) for one in settings.METRICS_NETWORKS)


class _Bearer(ByToken):
    """Our tokens under the name that Prometheus gives them; REST's own "Token" works too."""

    def authenticate_header(self, request: HttpRequest) -> str:
        return "Bearer"


def _may_view(request: HttpRequest) -> bool:
    user = request.user
    for scheme in (_Bearer(), ByToken()):
        try:
            found = scheme.authenticate(request)
        except AuthenticationFailed:
            return False
        if found is not None:
            user = found[0]
    return bool(user.is_authenticated and rules.has_perm(VIEW, user))


urlpatterns = [path("metrics", metrics, name="metrics")]
