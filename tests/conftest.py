"""The cast, the clock, and what a bare machine may lack.

A test marked `browser`, `hdfs`, `kafka`, `kubernetes`, `redis`, `s3` or `spark` needs a real piece
of software. Where it is missing the test is skipped with the way to get it; in CI a missing piece
is a failure.
"""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import LazySettings
from django.conf import settings as django_settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import Client, TransactionTestCase
from django.test.utils import override_settings

from controlplane.home import Home
from listeners.loops import slices
from queries import host_pressure
from queries.domain.hosts import Pressure
from queries.jvm import compiled
from queries.jvm.compiled import NotCompiled, our_jar
from queries.launchers.recorded_isolation import FILE as ISOLATION
from queries.models.access.accounts import Grant
from tests import (
    conftest_areas,
    conftest_database,
    conftest_tables,
    conftest_untrusted,
    pieces,
)
from tests.conftest_kafka import broker, one_broker
from tests.examples import SHARE, examples
from tests.faults.shared import (
    ByFile,
    one_system,
    roomy_system,
    shared_system,
    small_disk,
    system_on_a_small_disk,
)
from tests.kubernetes.clusters import kubernetes
from tests.scenarios.stage import Stage
from tests.storage.servers import s3_jvm
from tests.storage.stores import hadoop_jvm, hdfs, s3

#: Fixtures that any test may ask for.
__all__ = [
    "broker",
    "hadoop_jvm",
    "hdfs",
    "kubernetes",
    "one_broker",
    "one_system",
    "roomy_system",
    "s3",
    "s3_jvm",
    "shared_system",
    "small_disk",
    "system_on_a_small_disk",
]

#: No test may reach the data, the drivers or the Redis of an installation in this folder.
_HOME = Path(tempfile.mkdtemp(prefix="headgate-tests-"))
_NOBODY = "redis://127.0.0.1:9/0"  # the discard port: refused at once

_NEEDS: dict[str, Callable[[], str]] = {
    "browser": pieces.missing_browser,
    "hdfs": pieces.missing_hdfs,
    "kafka": pieces.missing_kafka,
    "kubernetes": pieces.missing_kubernetes,
    "oidc": pieces.missing_identity_provider,
    "editor": pieces.missing_editor_build,
    "prometheus": pieces.missing_prometheus,
    "redis": pieces.missing_redis,
    "s3": pieces.missing_s3,
    "spark": pieces.missing_java,
    "walls": pieces.missing_walls,
}
_OF_THE_HOST = {"walls", "kubernetes"}


# A loaded machine is slow, and that is no finding.
# A share of the examples is always the same one: whether a change reaches full coverage must not
# depend on what was drawn. `make test-all` draws new ones.
hypothesis.settings.register_profile(
    "headgate", deadline=None, max_examples=examples(100), derandomize=SHARE < 1
)
hypothesis.settings.load_profile("headgate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--database`, `--areas` and `--promises`."""
    conftest_areas.add_options(parser)
    conftest_database.add_option(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let pytest-xdist see what `--database` needs."""
    conftest_database.use_a_worker(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    """Keep what shares a system, broker or driver in one process; every other file by itself."""
    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_call")
def pytest_no_path_of_a_driver() -> Iterator[None]:
    """See that no test shows the worker touching by its path what a driver can write."""
    yield from conftest_untrusted.check()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what has to run on PostgreSQL too."""
    conftest_database.mark(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """See that a test runs the SQL that it is marked to run."""
    yield from conftest_database.come_through(item)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Put the database into the names of the tests."""
    conftest_database.parametrize(metafunc)


def pytest_configure(config: pytest.Config) -> None:
    """Point every path and address of the settings away from any installation."""
    from controlplane.celery import app

    conftest_untrusted.install()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell begins what it puts into the background: what tests interrupt would not hear.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [
        "DRIVERS_DIR",
        "CODE_DIR",
        "PACKAGES_DIR",
        "CHECKPOINTS_DIR",
        "SECRETS_DIR",
        "JARS_DIR",
        "MIRRORS_DIR",
        "SPARKS_DIR",
        "STATIC_ROOT",
    ]:
        setattr(django_settings, name, _HOME / name.lower())
    django_settings.STATIC_ROOT.mkdir()  # WhiteNoise warns of a folder that is not there
    django_settings.CONNECTORS_DIR = _connectors()
    if another := pieces.spark():
        django_settings.SPARKS_DIR = Path(another).parent
    django_settings.HEADGATE_HOME = _HOME
    django_settings.STARTS_AT_ONCE = 2  # whatever the cores of this machine
    django_settings.ALLOWED_PATHS = ["/"]  # tests of the roots have their own
    django_settings.HOME = Home(_HOME)
    django_settings.REDIS_URL = django_settings.CELERY_BROKER_URL = _NOBODY
    app.conf.update(broker_url=_NOBODY)
    if connection.vendor == "sqlite":
        # A file, as in production: threads with connections of their own wait for each other's
        # locks there, where SQLite's shared memory refuses at once.
        connection.settings_dict["TEST"]["NAME"] = str(_HOME / "tests.sqlite3")
    os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # playwright runs a loop of its own
    conftest_database.start(config)


def _connectors() -> Path:
    """Return the folder of the connectors: of `make kafka`, else one that holds the name alone.

    Many tests define a query on Kafka that no Spark will ever run; those that run one are skipped
    where the jars are missing.
    """
    real = pieces.kafka_connector()
    if any(real.glob("*.jar")):
        return real.parent
    named = _HOME / "connectors" / "kafka"
    named.mkdir(parents=True)
    (named / "spark-sql-kafka-0-10.jar").touch()
    return named.parent


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the tests wrote."""
    conftest_database.stop()
    shutil.rmtree(_HOME, ignore_errors=True)


#: Files that take longest, the longest first: so begun, no core waits for another at the end.
_LONGEST = (
    "test_order_and_replay",
    "test_whole_system",
    "test_within_walls",
    "test_async_progress_off",
    "test_lag_and_loss",
    "test_checkpoint_operations",
    "test_shim_exits",
    "test_slow_listener",
    "test_every_trigger",
    "test_async_map",
    "test_probes",
    "test_probe_answers",
    "test_trigger_limits_hold",
    "test_async_map_beside",
    "test_up",
    "test_preflight_on_a_broker",
    "test_one_worker_per_host",
    "test_up_bootstrap",
)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage rarely, and not among what was imported: a third of the time went there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest, and drive browsers last.

    Playwright leaves an event loop running, in which no other may run.
    """
    conftest_areas.deselect(config, items)
    conftest_database.deselect(config, items)

    def place(item: pytest.Item) -> tuple[bool, int]:
        name = item.path.stem
        by_length = _LONGEST.index(name) if name in _LONGEST else len(_LONGEST)
        return item.get_closest_marker("browser") is not None, by_length

    items.sort(key=place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip (in CI: fail) a test whose real piece is not on this host.

    What a kernel or the folder of a checkout does not allow, nobody can install: it is skipped in
    CI too. Kubernetes needs a host on which root can make bridges and cgroups.
    """
    for mark, missing in _NEEDS.items():
        if item.get_closest_marker(mark) is None:
            continue
        if reason := missing():
            if os.environ.get("CI") and mark not in _OF_THE_HOST:
                pytest.fail(f"{mark}: {reason}", pytrace=False)
            pytest.skip(f"{mark}: {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name in the text of a failure the round of the loop that it is of: XML does not."""
    if isinstance(report, pytest.SubtestReport) and report.failed:
        text, told = report.longrepr, ("round", report.head_line, "-")
        if told not in getattr(text, "sections", [told]):
            text.addsection(*told)  # type: ignore[union-attr]


@pytest.fixture(autouse=True, scope="session")
def calm_host() -> Iterator[None]:
    """Let no test depend on how busy this machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_pressure, "read_pressure", lambda: Pressure(0.0, 0.0, 2))
        yield


@pytest.fixture(scope="session", autouse=True)
def _plain_and_fast() -> Iterator[None]:
    """Serve static files as they lie, hash passwords cheaply, pause for nobody."""
    slices._PAUSE_S.clear()
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    with override_settings(
        STORAGES=django_settings.STORAGES | {"staticfiles": plain},
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ):
        yield


#: As `listeners.loops.slices` has it.
_PAUSES = dict(slices._PAUSE_S)


@pytest.fixture
def bulk_work_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bulk work leave the database to others between its slices, as it does in production.

    Most tests have no others: what they did would only be waited for.
    """
    for vendor, seconds in _PAUSES.items():
        monkeypatch.setitem(slices._PAUSE_S, vendor, seconds)


def _tables() -> Path:
    return Path(connection.settings_dict["TEST"]["NAME"])


@pytest.fixture(scope="session")
def django_db_keepdb(
    request: pytest.FixtureRequest, django_db_modify_db_settings: None, django_db_keepdb: bool
) -> bool:
    """Begin with a copy of the tables on SQLite, where an earlier run has kept them."""
    if connection.vendor != "sqlite":
        return django_db_keepdb
    conftest_tables.fetch(request.config, _tables())
    return True


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[None]:
    """Keep new tables, and let go of what threads of ended event loops still hold of them.

    A loop's threads end with the process, and PostgreSQL drops no database in use.
    """
    if connection.vendor == "sqlite" and _tables().exists():
        conftest_tables.keep(request.config, _tables())
    yield
    connection.close()
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture(autouse=True)
def _no_isolation_left_behind() -> Iterator[None]:
    """Forget which isolation a test's worker recorded: the next test may have another worker."""
    yield
    (_HOME / ISOLATION).unlink(missing_ok=True)


@pytest.fixture(scope="session", autouse=True)
def _emptied_between_tests() -> Iterator[None]:
    """Let tests with transactions of their own empty the audit log, as nobody else can.

    The signal after that makes the triggers again.
    """
    from queries.models.access.audit import unguard

    teardown = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]

    def emptied(self: Any) -> None:
        unguard(connection)
        teardown(self)

    TransactionTestCase._fixture_teardown = emptied  # type: ignore[attr-defined]
    yield
    TransactionTestCase._fixture_teardown = teardown  # type: ignore[attr-defined]


@pytest.fixture
def now() -> datetime:
    """Return the moment at which a story begins; stories pass it on."""
    return datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def person(name: str, role: str = "") -> User:
    """Return a new account, in the group of its role."""
    user = User.objects.create_user(name, password="a password of the cast")
    if role:
        user.groups.add(Group.objects.get(name=role))
    if role in ("author", "admin"):
        Grant.objects.create(user=user, write_python=True)
    return user


@pytest.fixture
def full_database(viewer: User, author: User) -> Iterator[None]:
    """Let SQLite find no room for anything new, as on a full disk; left out on PostgreSQL."""
    with connection.cursor() as cursor:
        (pages,) = cursor.execute("PRAGMA page_count").fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages}")
        yield
        cursor.execute("PRAGMA max_page_count = 1073741823")


class Browser(Client):
    """A browser that signs in by a session alone: what else a sign-in does takes ten queries."""

    def force_login(self, user: Any, backend: str | None = None) -> None:
        """Make the session that a sign-in leaves, and take its cookie."""
        from queries.models.access.accounts import SessionStore

        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = backend or "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.create()
        self.cookies[django_settings.SESSION_COOKIE_NAME] = str(session.session_key)


@pytest.fixture
def client() -> Browser:
    """Return a browser in which nobody is signed in yet."""
    return Browser()


@pytest.fixture
def viewer(db: None) -> User:
    """Return Vera, who reads."""
    return person("vera", "viewer")


@pytest.fixture
def operator(db: None) -> User:
    """Return Otto, who starts and stops."""
    return person("otto", "operator")


@pytest.fixture
def author(db: None) -> User:
    """Return Aude, who defines, in Python too."""
    return person("aude", "author")


@pytest.fixture
def admin(db: None) -> User:
    """Return Ada, who gives roles and tokens."""
    return person("ada", "admin")


@pytest.fixture
def outsider(db: None) -> User:
    """Return Olaf, who has an account and no role."""
    return person("olaf")


@pytest.fixture(scope="module")
def story(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Let the fixtures of a module keep rows that each of its tests begins with.

    They are written once; what a test changes is rolled back to them, as ever. A test that
    plays on takes a deep copy of their stage.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="session", autouse=True)
def our_classes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have our Java classes at hand, as after `make run`; without Java, it is known that none are.

    All processes of a test run share one compilation.
    """
    try:
        jar = our_jar(tmp_path_factory.getbasetemp().parent / "headgate-classes")
    except NotCompiled:
        with suppress(NotCompiled):
            our_jar(django_settings.JARS_DIR)
    else:
        django_settings.JARS_DIR.mkdir(exist_ok=True)
        shutil.copy2(jar, django_settings.JARS_DIR)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, settings: LazySettings, tmp_path: Path) -> None:
    """Have no Java, so that no storage can be reached: compiling our classes has just failed."""
    settings.JARS_DIR = tmp_path / "jars"
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(compiled, "RETRY_S", 3600)  # it does not begin again on a slow machine
    with pytest.raises(NotCompiled, match="Java cannot be started"):
        our_jar(settings.JARS_DIR)


@pytest.fixture
def stage(db: None) -> Stage:
    """Return an empty installation at three in the morning, for a story to play on."""
    return Stage()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """Start a Redis of the tests' own; return its address. Each test may flush it."""
    with pieces.redis_server() as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def database(request: pytest.FixtureRequest) -> str:
    """Return the database that this test runs on, "sqlite" or "postgresql"."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture(scope="session")
def java_home() -> str:
    """Return the JAVA_HOME that drivers of tests run on, and set it for this process."""
    home = str(pieces.java().home)
    os.environ["JAVA_HOME"] = home
    return home


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Return how Debian's own Chromium is launched, without a word to the network."""
    return {**browser_type_launch_args, **pieces.chromium_arguments()}
