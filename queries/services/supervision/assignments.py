"""Build the data that a driver receives: its spec at launch, and its assignment."""

import hashlib
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings

from controlplane import hosts, jws
from headgate_ground.masking import references
from headgate_server import places
from listeners import senders
from listeners.selectors import longest_batch_s
from queries.domain.catalogs import CatalogSpec
from queries.domain.definitions.configuration import fairscheduler_xml
from queries.domain.definitions.locations import canonical, local_path
from queries.domain.definitions.spec import ApplicationSpec, PoolSpec
from queries.domain.kafka.topic_ids import by_topic, ids_of
from queries.domain.pods import grace_s
from queries.domain.protocol import Assignment, AssignmentEntry, DriverSpec, Want
from queries.domain.secrets import application as holder_named
from queries.domain.sparks import OURS, Spark, command
from queries.domain.states import DISPATCHED_KINDS, DriverKind
from queries.domain.supervision.decision import Decision, QueryDecision
from queries.domain.triggers.batch_cost import FILE_MANAGER, OUR_FILES
from queries.domain.validation.formats import connector_way_out
from queries.jvm.compiled import begin, existing, missing
from queries.launchers.base import LaunchRefused
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Installation, Run
from queries.selectors.catalogs import catalog_specs
from queries.selectors.definitions.definitions import (
    conf_of_connectors,
    folder_for,
    held_checkpoints,
    jars_of,
    recipes,
    retired_locations,
)
from queries.selectors.rows import newest_revisions
from queries.selectors.secrets import bound_to
from queries.selectors.spark_folders import folder_of, installed_sparks
from queries.selectors.spark_folders import jars_of as jars_of_spark
from queries.services.code.preparing import NO_CODE, Frozen
from queries.services.local_roots import (
    allowed_paths,
    checkpoints_of,
    default_checkpoint,
    make_ours,
)
from queries.services.scripts import folders, script_job, submitted
from queries.services.secrets import application_refusal, query_refusal

#: The class writes the log entries of checkpoints on S3; elsewhere it uses Spark's own manager.
_CHECKPOINT_FILES = {FILE_MANAGER: OUR_FILES}


def entries(
    decision: Decision, runs: dict[int, Run], checkpoints: dict[int, Checkpoint]
) -> tuple[AssignmentEntry, ...]:
    """Return an entry for each open run, sorted by query; both arguments are keyed by query."""
    wants = {choice.query: choice for choice in decision.queries}
    return tuple(
        _entry(run, wants.get(query), checkpoints[query])
        for query, run in sorted(runs.items())
        if query in checkpoints
    )


def digest(rows: tuple[AssignmentEntry, ...], *, end: bool) -> str:
    """Return a digest of an assignment's contents, without its generation."""
    text = Assignment(generation=0, epoch=0, queries=rows, end=end).dumps()
    return hashlib.sha256(text.encode()).hexdigest()


def driver_spec(driver: Driver, code: Frozen = NO_CODE) -> DriverSpec:
    """Return the spec that the driver is started with.

    Raises `LaunchRefused` if a connector or the Spark that its application names is not installed,
    or if its definition names something that no admin has allowed.
    """
    spec = ApplicationSpec.model_validate(driver.application_revision.spec)
    if refused := application_refusal(spec, driver.application):
        raise LaunchRefused(refused)
    spark = spark_folder(spec.spark)
    make_ours()  # before it starts: in its sandbox it sees only folders that exist then
    roots = allowed_paths(driver.application.name)
    # Probes and storage JVMs run no script; the latter have no copy of its code either.
    dispatched = driver.kind in DISPATCHED_KINDS
    script = script_job(driver.application, spec, code.roots) if dispatched else None
    later = _folders(driver, spec.kind == "script")
    # Storage JVMs read checkpoints and logs of tables, and connect to no catalog.
    reads_tables = driver.kind != DriverKind.STORAGE
    catalogs = tuple(catalog_specs(spec.catalogs).values()) if reads_tables else ()
    own, without = own_classes(spec.spark) if dispatched else ((), "")
    return DriverSpec(
        driver=driver.pk,
        epoch=driver.epoch,
        application=driver.application.name,
        installation=str(Installation.get().uuid),
        host=driver.host,
        master=spec.master,
        memory=spec.memory,
        conf=(_CHECKPOINT_FILES if own else {})
        | conf_of_connectors(spec.connectors, spec.spark)
        | spec.conf
        | (submitted(spec.script.submit) if spec.kind == "script" and spec.script else {}),
        script=script,
        env=spec.env,
        code_roots=code.roots,
        code_sha256=driver.code_sha256,
        packages=code.packages,
        scheduler_mode=spec.scheduler_mode,
        listeners=spec.listeners,
        redis_url=senders.address(driver.pk, driver.epoch),
        stream=senders.stream_of(driver.epoch),
        revocation=senders.revocation_of(driver.epoch),
        event_key=hosts.event_key(driver.pk, driver.epoch).hex(),
        ui_port=driver.ui_port or 0,
        ui_key=jws.key(driver.pk, driver.epoch).hex(),
        event_settings={"force_fallback": settings.FORCE_LISTENER_FALLBACK},
        spark=spark,
        jars=connector_jars(spec.connectors, spec.spark) + own,
        secrets_dir=str(settings.SECRETS_DIR),
        env_allowlist=_variables_named(driver, spec, catalogs),
        catalogs=catalogs,
        data_roots=roots.roots,
        own_folders=roots.own,
        data_umask=settings.DATA_UMASK,
        checkpoints=_locations(driver) if dispatched else (),
        folders=later,
        start_deadline_s=settings.START_DEADLINE_S,
        start_max_s=settings.START_MAX_S,
        fence_watch_s=settings.FENCE_WATCH_S,
        without_classes=without,
        standby=driver.kind == DriverKind.STANDBY,
        pod=dispatched and spec.runs_in_pod,
        grace_s=_grace_s(driver) if dispatched and spec.runs_in_pod else 0,
    )


def _grace_s(driver: Driver) -> int:
    """Return how long the driver's pod may go on after it was deleted, in seconds."""
    queries = Query.objects.filter(application=driver.application_id).values_list("pk", flat=True)
    return grace_s(longest_batch_s(list(queries)))


def launched_with(spec: DriverSpec) -> str:
    """Return a digest of a driver's launch parameters: equal if a new one would be the same.

    The time limits of starts are left out: a standby fits whatever limits it was launched with.
    So is why our classes are missing: a worker that has started again does not know it yet.
    """
    same = replace(spec, start_deadline_s=None, start_max_s=None, without_classes="")
    return hashlib.sha256(same.dumps().encode()).hexdigest()


def own_classes(spark: Spark) -> tuple[tuple[str, ...], str]:
    """Return the jar with our own classes for a driver, or why it has to do without.

    Only checkpoints that are not local need them: an application that has one waits for them
    (`decide`). A driver without them refuses a run on its first one, and is replaced; on Spark
    3.5, it has no Spark UI either. Probes work on local copies. If the jar is missing, it is
    compiled in the background, and the caller does not wait: the next driver may have it.
    """
    jars = jars_of_spark(spark)
    if (jar := existing(settings.JARS_DIR, jars)) is not None:
        return (str(jar),), ""
    begin(settings.JARS_DIR, jars)
    return (), missing(settings.JARS_DIR, jars)


def _folders(driver: Driver, runs_script: bool) -> tuple[str, ...]:
    """Return the folders in which the application may create further checkpoints."""
    if runs_script:
        return folders(driver.application)
    return () if driver.application.own else (str(checkpoints_of(driver.application.name)),)


def relocate_checkpoint(query: Query, checkpoint: Checkpoint) -> None:
    """Move a checkpoint location chosen by Headgate below this host's home, unless it was used.

    Call this before the first run: the location depends on the host that runs the query, whose home
    may differ from that of the host on which the query was defined.
    """
    if not checkpoint.by_default or checkpoint.built_from_id is not None:
        return
    if local_path(checkpoint.location) is None:  # for a driver in a pod: the same on all hosts
        return
    if checkpoint.location.startswith(f"{canonical(str(settings.CHECKPOINTS_DIR))}/"):
        return
    if checkpoint.runs.exists():
        return
    shared = "" if query.application.own else query.application.name
    used_locations = retired_locations() | set(held_checkpoints(but=query))
    checkpoint.location = default_checkpoint(query.name, shared, avoid=used_locations)
    checkpoint.save(update_fields=["location"])


def _locations(driver: Driver) -> tuple[str, ...]:
    """Return the locations of the checkpoints of the driver's application."""
    checkpoints = Checkpoint.objects.filter(
        query__application=driver.application_id, retired_at=None
    )
    return tuple(checkpoints.order_by("pk").values_list("location", flat=True))


def _variables_named(
    driver: Driver, spec: ApplicationSpec, catalogs: tuple[CatalogSpec, ...]
) -> tuple[str, ...]:
    """Return the variables that the driver's application, queries and catalogs reference.

    A driver runs users' code, so it does not get variables that only other definitions reference,
    or that are not bound to it.
    """
    living = Query.objects.filter(application=driver.application_id, archived_at=None)
    newest = newest_revisions(list(living.values_list("pk", flat=True)))
    named: list[Any] = [spec.model_dump(mode="json"), *(row.spec for row in newest.values())]
    named += living.exclude(target_revision=None).values_list("target_revision__spec", flat=True)
    if driver.operation is not None:  # a probe tries definitions that may be unsaved
        named.append(driver.operation.arguments)
    usable = references(named) & bound_to(holder_named(driver.application.name)).keys()
    usable |= {catalog.secret for catalog in catalogs}
    return tuple(name for name in settings.SECRET_ENV_ALLOWLIST if f"env:{name}" in usable)


def spark_folder(spark: Spark) -> str:
    """Return the folder of another Spark version for a driver; "" for ours.

    Raises `LaunchRefused` if this host does not have it.
    """
    if spark not in installed_sparks():
        way_out = places.with_local_commands(f"Run `{command(spark)}` on this host.")
        raise LaunchRefused(
            f"The application runs on Spark {spark}, which is not installed in "
            f"{settings.SPARKS_DIR}. {way_out} Then start the application again."
        )
    folder = folder_of(spark)
    return "" if folder is None else str(folder)


def connector_jars(names: tuple[str, ...], spark: Spark = OURS) -> tuple[str, ...]:
    """Return the jars of the connectors installed for a Spark version, without duplicates.

    Raises `LaunchRefused` if a connector is not installed: otherwise, Spark would report only after
    its start that it cannot find a data source.
    """
    jars_by_name: dict[
        str, str
    ] = {}  # two connectors may contain the same library: one copy is enough
    for name in names:
        jars = jars_of(name, spark)
        if not jars:
            way_out = places.with_local_commands(connector_way_out(name, recipes(spark), spark))
            raise LaunchRefused(
                f"The application uses the connector {name}, which is not installed in "
                f"{folder_for(spark)}. {way_out} Then start the application again."
            )
        for jar in jars:
            jars_by_name.setdefault(jar.name, str(jar))
    return tuple(jars_by_name.values())


def pools_xml(driver: Driver) -> str:
    """Return the fairscheduler.xml of the pools that the driver was created with."""
    return fairscheduler_xml(tuple(PoolSpec.model_validate(pool) for pool in driver.pools))


def _entry(run: Run, choice: QueryDecision | None, checkpoint: Checkpoint) -> AssignmentEntry:
    want = choice.want if choice and choice.open_run is None else Want.RUN
    deadline: datetime | None = choice.deadline if choice and want is not Want.RUN else None
    spec: dict[str, Any] = json.loads(json.dumps(run.revision.spec))
    # A run that the last release created has no values of its own, but its definition may.
    params = spec.get("params") if run.params is None else run.params
    # Drivers of the last release reject fields that they do not know, also with default values.
    for name in ("params", "schedule", "thresholds"):
        spec.pop(name, None)
    if params:
        spec["params"] = params
    return AssignmentEntry(
        query=run.query_id,
        name=run.query.name,
        run=run.pk,
        epoch=run.epoch,
        spec=spec,
        checkpoint=run.checkpoint.location,
        pool=spec.get("pool", ""),
        want=want,
        deadline=deadline.isoformat() if deadline else None,
        takeover=checkpoint.takeover_at is not None,
        accepts_loss=run.accepts_loss,
        topic_ids=by_topic(ids_of(run.checkpoint.topic_ids)),
        found=run.found or 0,
        dump=run.dump_asked_at.isoformat() if run.dump_asked_at else "",
        # Running queries are not checked: a revoked right takes effect at the next start.
        refused=query_refusal(
            run.revision.spec, run.query.application.name, run.driver.application_revision.spec
        )
        if run.started_at is None
        else "",
    )
