"""A deploy on its way in a story, with workers that come when they are called."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.utils import timezone

from listeners.models import Progress
from queries.domain.deploys.request import parse_deploy
from queries.domain.probes.questions import (
    AttemptEnd,
    PlanSeen,
    PreflightAttempt,
    ProbeResult,
    Tried,
)
from queries.models.access.accounts import Grant
from queries.models.definitions import Query
from queries.models.deploys import Deploy, DeployChange
from queries.models.drivers import Driver, Run
from queries.services.deploys.advancing import advance_all
from queries.services.deploys.requesting import cancel_deploy, request_deploy
from queries.services.procedures.engine import advance, due_operations
from queries.tasks import PROCEDURES
from tests.scenarios.stage import Stage

PASSED = ProbeResult(
    "Comparing the plans",
    done=True,
    took_ms={"Starting Spark": 7000},
    tried=(Tried(PreflightAttempt.FRESH, AttemptEnd.PASSED, 0, 20, 300),),
    plan=PlanSeen({"op": "Project", "streaming": True, "children": []}, "append"),
    sink="noop",
)
REFUSED = (
    Tried(
        PreflightAttempt.REPLAY,
        AttemptEnd.FAILED,
        0,
        0,
        300,
        {
            "error_class": "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
            "type_name": "StateStoreValueSchemaNotCompatible",
            "root_cause": "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] The value schema differs.",
            "message": "The value schema differs.",
        },
    ),
)


def ada() -> User:
    """Return the author who deploys."""
    found = User.objects.filter(username="ada").first()
    if found is None:
        found = User.objects.create_user("ada")
        found.groups.add(Group.objects.get(name="author"))
        Grant.objects.create(user=found, write_python=True)
    return found


#: Configuration that means nothing to Spark; a change of it takes a restart of the query.
NOTE = "spark.sql.note"


class Way:
    """One deploy after the other, of what stands on a stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.now = timezone.now()  # the engine of operations with steps reads the wall's clock
        self.row: Deploy | None = None

    def manifest(self, name: str, **changes: Any) -> dict[str, Any]:
        """Return a query's manifest, with these fields of its definition changed."""
        row = Query.objects.get(name=name, archived_at=None)
        spec = row.revisions.latest("number").spec | changes
        about = {"name": name, "application": row.application.name}
        return {"apiVersion": "headgate/v1", "kind": "Query", "metadata": about, "spec": spec}

    def ask(
        self,
        *manifests: dict[str, Any],
        prune: bool = False,
        prune_running: bool = False,
        **how: Any,
    ) -> Deploy:
        """Ask for a deploy of these manifests, and let a worker take its first steps."""
        files = [{"path": f"{at}.yaml", "manifest": one} for at, one in enumerate(manifests)]
        body = {"owner": "repo", "manifests": files, "prune": prune}
        body["prune_running"] = prune_running
        form = parse_deploy({"apply": body, **how})
        self.row = request_deploy(form=form, user=ada(), actor="ada", now=self.stage.now)
        return self.work()

    def change(self, *names: str, note: str = "new", **how: Any) -> Deploy:
        """Ask for a deploy that changes a field of these queries which takes a restart."""
        return self.ask(*(self.manifest(one, conf={NOTE: note}) for one in names), **how)

    def work(self, minutes: float = 0) -> Deploy:
        """Let workers do all that can be done, after some minutes."""
        self.stage.now += timedelta(minutes=minutes)
        for _ in range(4):
            self.stage.look()
            self.step()
            self.take_steps()
        self.stage.look()
        return self.now()

    def step(self) -> None:
        """Let a worker take the steps of deploys."""
        advance_all(now=self.stage.now)

    def take_steps(self) -> None:
        """Let a worker take the steps of snapshots and preflights."""
        for operation in due_operations(now=self.stage.now):
            advance(
                operation,
                procedures=PROCEDURES,
                launcher=self.stage.launcher,
                now=self.stage.now,
            )

    def came_back(self, name: str, application: str = "") -> Deploy:
        """The former definition's run commits."""
        return self.came_up(name, application)

    def probe(self, **found: Any) -> Deploy:
        """The newest probe driver has found this: that all is well, where nothing is said."""
        result = replace(PASSED, **found)
        self.stage.launcher.answer(result.dumps())
        return self.work()

    def now(self) -> Deploy:
        """Return the deploy as it is."""
        assert self.row is not None
        return Deploy.objects.get(pk=self.row.pk)

    def cancel(self) -> Deploy:
        """Have it ended."""
        cancel_deploy(self.now(), actor="olga", now=self.stage.now)
        return self.work()

    def of(self, name: str, kind: str = "Query") -> DeployChange:
        """Return what the deploy says of a query."""
        return self.now().changes.get(name=name, kind=kind)

    def came_up(self, name: str, application: str = "") -> Deploy:
        """The query's new run commits: after the old run and, where it leaves, the old driver."""
        place = application or name
        self.stage.look()
        self.leave(name, place)
        self.stage.ready(place)
        self.stage.commit(name)
        self.store_batches(name, 1)
        return self.work()

    def leave(self, name: str, place: str) -> None:
        """The old run ends, and an old driver that is leaving is gone."""
        for _ in range(3):
            for run in Run.objects.filter(query__name=name, outcome="").select_related("driver"):
                if run.stop_asked_at is not None or run.driver.state == "STOPPING":
                    self.stage.launcher.end_run(run.pk)
            self.stage.look()
            drivers = Driver.objects.filter(application__name=place, kind="SERVICE")
            for driver in drivers.filter(state="STOPPING"):
                self.stage.launcher.leave(place, epoch=driver.epoch)
            self.stage.look()

    def store_batches(self, name: str, count: int) -> None:
        """Events of batches arrive."""
        run = self.stage.run(name)
        first = Progress.objects.filter(run=run.pk).count()
        for number in range(first, first + count):
            Progress.objects.create(
                driver=run.driver_id,
                epoch=run.epoch,
                seq=1000 * run.pk + number,
                query=run.query_id,
                run=run.pk,
                spark_run_id=run.spark_run_id or str(run.pk),
                batch=10 + number,
                at=self.stage.now,
                received_at=self.stage.now,
            )
