"""A stage with one application that runs a script."""

from typing import Any

from queries.domain.protocol import RunError
from queries.domain.states import StopMode
from queries.domain.supervision.script import TRANSITIONS
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.history import Operation, Transition
from queries.services.supervision import application_operations as verbs
from tests.scenarios.stage import Stage


class ScriptStage(Stage):
    """A stage with one application, `job`, that runs a script."""

    def __init__(self, code: str = "/code", **spec: Any) -> None:
        super().__init__()
        script = {"file": f"{code}/job.py", "arguments": ["--fast"]}
        self.application("job", kind="script", script=script, python_path=[code], **spec)

    @property
    def job(self) -> Application:
        return Application.objects.get(name="job")

    @property
    def script(self) -> Script:
        return Script.objects.get(application__name="job")

    def start_script(self) -> Operation:
        operation = verbs.request_script_start(application=self.job, actor="olga", now=self.now)
        self.settle()
        return operation

    def stop_script(self, mode: StopMode = StopMode.GRACEFUL) -> Operation:
        [operation] = verbs.request_application_stop(
            application=self.job, mode=mode, actor="olga", now=self.now
        )
        self.settle()
        return operation

    def running(self, *names: str) -> None:
        """Bring the script to RUNNING, with these queries found and committed."""
        self.start_script()
        self.ready("job")
        for name in names:
            self.find(name)

    def find(self, name: str, **more: Any) -> Query:
        self.launcher.finds("job", name, **more)
        self.look("job")
        query = Query.objects.get(application__name="job", name=f"job/{name or 'query'}")
        self.commit(query.name)
        return query

    def fail_script(self, error: RunError, batch: int | None = None) -> None:
        self.launcher.script_fails("job", error, batch=batch)
        self.look("job")

    def outcome(self, operation: Operation) -> str:
        return Operation.objects.get(pk=operation.pk).outcome

    def check_history(self) -> None:
        """Every change of the script's phase is one that the table allows."""
        rows = Transition.objects.filter(subject="phase", query=None).order_by("pk")
        for row in rows:
            assert (row.before, row.after) in TRANSITIONS, (row.before, row.after)
