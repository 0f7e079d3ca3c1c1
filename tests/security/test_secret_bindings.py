"""A secret goes where an admin has bound it to go, and nowhere else."""

import socket
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.channels import kinds
from queries.channels.base import Message, SendFailed
from queries.checkpoints.logs import CheckpointLogs
from queries.domain.errors import Invalid, NotAllowed, Unavailable
from queries.domain.secrets import channel
from queries.domain.states import RunOutcome
from queries.models.alerts import Channel, Delivery
from queries.models.definitions import Query
from queries.models.history import Failure, Transition
from queries.roles import AuthorRights
from queries.selectors.kafka.lag import lag_of
from queries.selectors.secrets import bound_to
from queries.selectors.secrets import secrets as secrets_page
from queries.services import secrets as bindings
from queries.services.alerts import setup
from queries.services.alerts.deliveries import send, send_alerts, try_channel
from queries.services.checkpoints.source_starts import WantedStart, starts
from queries.services.definitions import catalog
from queries.services.kafka.lag import look_at_sources
from queries.services.secrets import query_refusal
from queries.services.supervision import application_operations, operations
from queries.services.supervision.assignments import driver_spec
from tests.conftest_brokers import commit
from tests.scenarios.stage import Stage
from tests.security.attacker import listener, reached
from tests.services.probes.test_preflight_operations import Ground
from tests.services.secrets.binding import bind

__all__ = ["listener"]  # a fixture

pytestmark = pytest.mark.django_db

SERVERS = "kafka.bootstrap.servers"
PASSWORD = "s3cret-of-the-brokers"


@pytest.fixture(autouse=True)
def secrets(settings: Any, tmp_path: Path) -> None:
    settings.SECRETS_DIR = tmp_path
    jaas = f'o.a.k.PlainLoginModule required username="u" password="{PASSWORD}";'
    (tmp_path / "jaas").write_text(jaas)


def kafka(server: socket.socket | str) -> dict[str, str]:
    at = server if isinstance(server, str) else "{}:{}".format(*server.getsockname())
    return {
        SERVERS: at,
        "subscribe": "in",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "file:jaas",
    }


def spec(server: socket.socket | str, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [{"name": "ticks", "format": "kafka", "options": kafka(server)}],
        "sql": "SELECT key, value FROM ticks",
        "sink": {"format": "noop"},
        "trigger": {"kind": "continuous", "interval": "1 second"},  # asks the broker when saved
        **changes,
    }


def save(stage: Stage, form: dict[str, Any]) -> None:
    catalog.create_query(name="x", spec=form, application="orders", actor="ana", now=stage.now)


@pytest.fixture
def orders(stage: Stage) -> None:
    stage.application("orders", master="local[4]", connectors=["kafka"])


# --- when a definition is saved -----------------------------------------------------------


@pytest.mark.guarantee("G-SECRET-1")
def test_an_unbound_secret_is_refused_with_the_sentence_that_mends_it(
    stage: Stage, orders: None, listener: socket.socket
) -> None:
    with pytest.raises(Invalid) as refused:
        save(stage, spec(listener))
    (problem,) = refused.value.problems
    at = "{}:{}".format(*listener.getsockname())
    assert problem.field == "sources.0.options.kafka.sasl.jaas.config"
    assert problem.value == "file:jaas"
    assert problem.sentence().endswith(
        "is not granted to application orders. Ask an admin to grant file:jaas to application "
        f"orders for {at}: Settings → Secrets."
    )
    assert not reached(listener)


@pytest.mark.parametrize("way", ["apply", "deploys"])
@pytest.mark.parametrize("bound", [[], ["broker.example.org:9092"]], ids=["unbound", "elsewhere"])
def test_no_manifest_takes_a_secret_where_it_is_not_bound_to_go(
    client: Client, author: User, orders: None, listener: socket.socket, way: str, bound: list[str]
) -> None:
    if bound:
        bind("file:jaas", "orders", *bound)
    client.force_login(author)
    about = {"name": "x", "application": "orders"}
    one = {"apiVersion": "headgate/v1", "kind": "Query", "metadata": about, "spec": spec(listener)}
    found: dict[str, Any] = {"owner": "repo", "manifests": [{"manifest": one}]}
    sent = {"apply": found} if way == "deploys" else found
    answer = client.post(f"/api/v1/{way}/", sent, content_type="application/json")
    assert answer.status_code == 422
    said = answer.content.decode()
    assert "kafka.sasl.jaas.config" in said
    assert ("but not for 127" if bound else "is not granted to application orders") in said
    assert not Query.objects.exists()
    assert not reached(listener)


def test_a_secret_bound_for_other_hosts_sends_nothing_to_the_authors_own(
    stage: Stage, orders: None, listener: socket.socket
) -> None:
    bind("file:jaas", "orders", "broker.example.org:9092")
    with pytest.raises(Invalid, match="but not for 127"):
        save(stage, spec(listener))
    assert not reached(listener)


S3 = "fs.s3a."


@pytest.mark.guarantee("G-SECRET-9")
@pytest.mark.parametrize("moment", ["save", "start", "page"])
def test_an_applications_s3_keys_do_not_follow_a_querys_endpoint(stage: Stage, moment: str) -> None:
    keys = {
        f"spark.hadoop.{S3}endpoint": "https://store.example.org",
        f"spark.hadoop.{S3}secret.key": "file:jaas",
    }
    stage.application("orders", conf=keys)
    bind("file:jaas", "orders", "store.example.org")
    conf = {f"spark.sql.catalog.lake.hadoop.{S3}endpoint": "https://evil.example.org"}
    form = {
        "kind": "sql",
        "sources": [{"name": "ticks", "format": "rate"}],
        "sql": "SELECT value FROM ticks",
        "sink": {"format": "noop"},
        "trigger": {"kind": "processing_time", "interval": "5 seconds"},
        "conf": conf,
    }
    if moment == "save":
        with pytest.raises(Invalid, match=r"but not for evil\.example\.org"):
            save(stage, form)
        return
    stage.query("x", "orders", **form)  # as saved before this was checked
    if moment == "page":
        (secret,) = [one for one in secrets_page() if one.name == "file:jaas"]
        assert [one.query for one in secret.refused] == ["x"]
        return
    stage.start("x")
    stage.ready("orders")
    assert stage.last_run("x").outcome != RunOutcome.OPEN
    failure = Failure.objects.get()
    assert "not for evil.example.org" in failure.root_cause
    assert "not for evil.example.org" in query_refusal(form, "orders")


def test_a_secret_of_another_application_is_refused(
    stage: Stage, orders: None, listener: socket.socket
) -> None:
    bind("file:jaas", "payments", "127.0.0.1")
    with pytest.raises(Invalid, match="is not granted to application orders"):
        save(stage, spec(listener))
    assert not reached(listener)


def test_a_bound_one_is_saved_and_asks_the_broker(
    stage: Stage, orders: None, listener: socket.socket
) -> None:
    bind("file:jaas", "orders", "127.0.0.1")
    save(stage, spec(listener))
    assert reached(listener)


@pytest.mark.parametrize(
    "changes",
    [
        {"sink": {"format": "kafka", "options": {**kafka("evil:9092"), "topic": "out"}}},
        {"conf": {"spark.sql.x": "file:jaas"}},
        {
            "sources": [
                {
                    "name": "ticks",
                    "format": "kafka",
                    "options": {
                        **kafka("broker:9092"),
                        "kafka.sasl.oauthbearer.token.endpoint.url": "https://evil.example/",
                    },
                }
            ]
        },
    ],
    ids=["sink", "configuration that SQL can read", "who gives tokens"],
)
def test_a_secret_bound_for_a_broker_cannot_be_taken_elsewhere(
    stage: Stage, orders: None, changes: dict[str, Any]
) -> None:
    bind("file:jaas", "orders", "broker:9092")
    trigger = {"trigger": {"kind": "processing_time", "interval": "5 seconds"}}
    fine = spec("broker:9092", **trigger)
    catalog.plan_query(name="x", spec=fine, application="orders")
    if "sink" in changes:
        changes["sink"]["options"].pop("subscribe", None)
    with pytest.raises(Invalid) as refused:
        catalog.plan_query(name="x", spec={**fine, **changes}, application="orders")
    assert [one.value for one in refused.value.problems] == ["file:jaas"]
    bind("file:jaas", "orders", "*")  # it was that guard alone
    catalog.plan_query(name="x", spec={**fine, **changes}, application="orders")


def test_an_applications_environment_needs_a_binding_for_anywhere(stage: Stage) -> None:
    bind("file:jaas", "orders", "broker:9092")
    form = {"env": {"TOKEN": "file:jaas"}}
    about: dict[str, Any] = {
        "spec": form,
        "actor": "ana",
        "now": stage.now,
        "rights": AuthorRights.ALL,
    }
    with pytest.raises(Invalid, match="any host"):
        catalog.create_application(name="orders", **about)
    bind("file:jaas", "orders")
    catalog.create_application(name="orders", **about)


def test_a_query_with_an_application_of_its_own_is_bound_by_its_name(stage: Stage) -> None:
    own = spec("b:1", trigger={"kind": "processing_time"})
    about: dict[str, Any] = {"application_spec": {"connectors": ["kafka"]}, "spec": own}
    with pytest.raises(Invalid, match="is not granted to application ticks"):
        catalog.create_query(name="ticks", actor="ana", now=stage.now, **about)
    bind("file:jaas", "ticks", "b")
    catalog.create_query(name="ticks", actor="ana", now=stage.now, **about)


@pytest.mark.guarantee("G-SECRET-1")
def test_another_application_of_a_deleted_ones_name_has_none_of_its_secrets(stage: Stage) -> None:
    bind("file:jaas", "orders")
    first = stage.application("orders")
    application_operations.archive_application(application=first, actor="olga", now=stage.now)
    with pytest.raises(Invalid, match="is not granted"):
        catalog.create_application(
            name="orders",
            spec={"env": {"T": "file:jaas"}},
            actor="ana",
            now=stage.now,
            rights=AuthorRights.ALL,
        )


def test_a_deleted_query_takes_the_bindings_of_its_own_application_with_it(stage: Stage) -> None:
    bind("file:jaas", "ticks", "b")
    own = spec("b:1", trigger={"kind": "processing_time"})
    about: dict[str, Any] = {"application_spec": {"connectors": ["kafka"]}, "spec": own}
    query = catalog.create_query(name="ticks", actor="ana", now=stage.now, **about)
    operations.archive_query(query=query, actor="olga", now=stage.now)
    with pytest.raises(Invalid, match="is not granted"):
        catalog.create_query(name="ticks", actor="ana", now=stage.now, **about)


# --- when it starts -----------------------------------------------------------------------


@pytest.mark.guarantee("G-SECRET-1")
def test_a_binding_that_was_taken_away_refuses_the_next_start_and_the_query_says_why() -> None:
    stage = Stage(obliging=True)
    binding = bind("file:jaas", "orders", "b:1")
    stage.application("orders", connectors=[])
    stage.query("delays", "orders", **spec("b:1", trigger={"kind": "processing_time"}))
    stage.start("delays")
    stage.ready("orders")
    bindings.unbind(binding, actor="ada", now=stage.now)
    stage.look("orders")
    assert stage.launcher.assignment("orders").queries[0].refused == ""  # what runs goes on
    assert stage.phase("delays") == "RUNNING"
    stage.restart("delays")
    stage.wait(5)
    stage.ready("orders")
    assert stage.phase("delays") == "FAILED"
    failure = Failure.objects.latest("pk")
    assert "Ask an admin to grant file:jaas to application orders for b:1" in failure.root_cause
    bind("file:jaas", "orders", "b:1")
    stage.start("delays")
    stage.wait(5)
    stage.ready("orders")
    assert stage.phase("delays") == "RUNNING"


def test_an_application_whose_environment_is_not_bound_is_not_launched() -> None:
    stage = Stage()
    stage.application("orders", env={"TOKEN": "file:jaas"})
    stage.query("delays", "orders")
    stage.start("delays")
    assert not stage.launcher.living()
    row = stage.row("delays")
    assert row.application.restart_block == "FAILED"
    assert "Ask an admin to grant file:jaas to application orders" in str(
        row.application.restart_block_reason
    )


def test_a_driver_is_given_no_variable_that_is_not_bound(settings: Any) -> None:
    settings.SECRET_ENV_ALLOWLIST = ["BOUND", "UNBOUND"]
    bind("env:BOUND", "orders")
    stage = Stage()
    stage.application("orders")
    stage.query("delays", "orders", conf={"spark.sql.a": "env:BOUND", "spark.sql.b": "env:UNBOUND"})
    stage.start("delays")
    assert driver_spec(stage.driver("orders")).env_allowlist == ("BOUND",)


# --- when Headgate itself would send it ---------------------------------------------------


@pytest.mark.parametrize("hosts", [(), ("elsewhere",), ("127.0.0.1",)])
def test_lag_is_asked_of_a_broker_that_the_secret_is_bound_for_alone(
    stage: Stage, listener: socket.socket, hosts: tuple[str, ...]
) -> None:
    if hosts:
        bind("file:jaas", "delays", *hosts)
    query = stage.query("delays", **spec(listener))
    look_at_sources(now=stage.now, query_ids=[query.pk])
    (said,) = lag_of(query, now=stage.now).errors
    if hosts == ("127.0.0.1",):
        assert reached(listener)
        assert "Settings" not in said
    else:
        assert not reached(listener)
        assert "Settings → Secrets" in said


def test_a_neighbour_that_may_is_asked_for_and_another_applications_query_is_not(
    stage: Stage, listener: socket.socket
) -> None:
    bind("file:jaas", "mine", "127.0.0.1")
    mine, theirs = (stage.query(name, **spec(listener)) for name in ("mine", "theirs"))
    look_at_sources(now=stage.now, query_ids=[mine.pk, theirs.pk])
    assert (
        "file:jaas is not granted to application theirs" in lag_of(theirs, now=stage.now).errors[0]
    )
    assert "is not granted" not in lag_of(mine, now=stage.now).errors[0]


def test_a_reset_asks_no_broker_that_the_secret_is_not_bound_for(
    stage: Stage, listener: socket.socket, tmp_path: Path
) -> None:
    query = stage.query("delays", **spec(listener))
    commit(tmp_path / "c", 0, {0: 100})
    logs = CheckpointLogs.at(f"file://{tmp_path}/c")
    with pytest.raises(NotAllowed, match="file:jaas is not granted to application delays"):
        starts(query, logs, WantedStart("latest"))
    assert not reached(listener)
    bind("file:jaas", "delays", "127.0.0.1")
    with pytest.raises(Unavailable):  # the attacker answers nothing
        starts(query, logs, WantedStart("latest"))
    assert reached(listener)


def test_a_preflight_of_what_is_no_longer_bound_launches_nothing(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.query.revisions.create(
        number=2,
        kind="sql",
        spec={**ground.query.revisions.get().spec, "conf": {"spark.sql.x": "file:jaas"}},
        author="ana",
        created_at=ground.stage.now,
    )
    operation = ground.begin()
    for _ in range(6):
        operation = ground.advance(operation)
    assert operation.outcome == "FAILED"
    assert "Ask an admin to grant file:jaas to application delays" in str(operation.detail)
    assert not ground.launcher.probes


# --- channels -----------------------------------------------------------------------------

MESSAGE = Message("k", "opened", "warning", "test", "title", "text", "", timezone.now())
HOOK = {
    "name": "ops",
    "kind": "webhook",
    "settings": {"url": "file:hook", "secret": "file:jaas"},
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses that messages were sent to."""
    found: list[str] = []
    monkeypatch.setattr(kinds, "send", lambda kind, form, *_, **__: found.append(form["url"]))
    return found


@pytest.mark.guarantee("G-SECRET-1")
def test_a_channel_names_secrets_that_are_bound_to_it(stage: Stage) -> None:
    bind("file:hook", "ops", "*", kind="channel")
    bind("file:jaas", "ops", "*")  # to an application of the same name
    with pytest.raises(Invalid) as refused:
        setup.save_channel(HOOK, actor="ada", now=stage.now)
    (problem,) = refused.value.problems
    assert problem.field == "settings.secret"
    assert "Ask an admin to grant file:jaas to channel ops" in problem.way_out
    assert not Channel.objects.exists()


def test_an_address_that_is_secret_is_judged_by_its_host_and_not_told(
    tmp_path: Path, sent: list[str]
) -> None:
    (tmp_path / "hook").write_text("https://evil.example/T0KEN\n")
    bind("file:hook", "ops", "hooks.example.org", kind="channel")
    bind("file:jaas", "ops", "*", kind="channel")
    about: dict[str, Any] = {"name": "ops", "bound": bound_to(channel("ops"))}
    with pytest.raises(SendFailed) as refused:
        send("webhook", HOOK["settings"], MESSAGE, **about)  # type: ignore[arg-type]
    assert str(refused.value) == (
        "Its URL leads to a host that the grant does not list: Settings → Secrets."
    )
    (tmp_path / "hook").write_text("https://hooks.example.org/T0KEN\n")
    send("webhook", HOOK["settings"], MESSAGE, **about)  # type: ignore[arg-type]
    assert sent == ["https://hooks.example.org/T0KEN"]


def test_a_mail_servers_password_goes_to_no_other_server(sent: list[str]) -> None:
    form = {"host": "mx.evil.example", "sender": "a@b", "password": "file:jaas"}
    bound = {"file:jaas": ("mx.example.org:587",)}
    with pytest.raises(SendFailed, match=r"but not for mx\.evil\.example:587"):
        send("mail", form, MESSAGE, name="ops", bound=bound)
    assert sent == []


def test_a_message_waits_until_its_secret_is_bound_again(
    stage: Stage, tmp_path: Path, sent: list[str]
) -> None:
    (tmp_path / "hook").write_text("https://hooks.example.org/T0KEN")
    bind("file:hook", "ops", "hooks.example.org", kind="channel")
    signing = bind("file:jaas", "ops", "hooks.example.org", kind="channel")
    row = setup.save_channel(HOOK, actor="ada", now=stage.now)
    bindings.unbind(signing, actor="ada", now=stage.now)
    try_channel(row, actor="ada", now=stage.now)
    send_alerts(now=stage.now, clock=stage.clock)
    assert sent == []
    assert "file:jaas is not granted to channel ops" in Delivery.objects.get().last_error
    bind("file:jaas", "ops", "hooks.example.org", kind="channel")
    Delivery.objects.update(attempt_after=stage.now)
    send_alerts(now=stage.now, clock=stage.clock)
    assert len(sent) == 1


def test_a_channel_keeps_its_secrets_under_another_name_and_a_deleted_one_loses_them(
    stage: Stage,
) -> None:
    for secret in ("file:hook", "file:jaas"):
        bind(secret, "ops", "*", kind="channel")
    row = setup.save_channel(HOOK, actor="ada", now=stage.now)
    row = setup.save_channel({**HOOK, "name": "sre"}, channel=row, actor="ada", now=stage.now)
    assert set(bound_to(channel("sre"))) == {"file:hook", "file:jaas"}
    assert bound_to(channel("ops")) == {}
    setup.delete_channel(row, actor="ada", now=stage.now)
    assert bound_to(channel("sre")) == {}


# --- what is recorded ---------------------------------------------------------------------


def test_every_change_is_recorded_with_who_made_it(stage: Stage) -> None:
    stage.application("orders")
    first = bind("file:jaas", "orders", "one:9092")
    assert bind("file:jaas", "orders", "one:9092") == first  # nothing changed
    second = bind("file:jaas", "orders", "one:9092", "two:9092")
    bindings.unbind(second, actor="olga", now=stage.now)
    told = Transition.objects.filter(subject="grant").order_by("pk")
    assert [(row.after, row.actor, str(row.detail)) for row in told] == [
        ("BOUND", "ada", "file:jaas for one:9092"),
        ("BOUND", "ada", "file:jaas for one:9092, two:9092"),
        ("UNBOUND", "olga", "file:jaas for one:9092, two:9092"),
    ]
    first.refresh_from_db()
    assert first.taken_by == "ada"  # its own row is kept as history
