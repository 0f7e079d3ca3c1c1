"""Drivers without processes that run a script: what the script starts, and how it ends."""

from typing import Any

from queries.domain.protocol import (
    SCRIPT_FAILED,
    FoundQuery,
    RunError,
    RunState,
    RunStatus,
    ScriptQuestion,
    ScriptReport,
    ScriptState,
)
from queries.domain.restart import RunFacts
from queries.domain.scripts import folder, identity
from queries.runtime.scripts.program import identity_error


class InMemoryScripts:
    """What a test says that a script does, for the launcher of which this is a part."""

    _lock: Any
    _driver: Any
    _exit: Any
    _now: Any

    def finds(
        self,
        application: str,
        name: str = "",
        *,
        asked: str = "",
        started: bool = True,
        **more: Any,
    ) -> int:
        """The script starts a query; return the number under which its run stands, negative."""
        with self._lock:
            driver = self._driver(application, None)
            number = max(driver.numbers, default=0) + 1
            driver.numbers.add(number)
            known = {one.identity: one.location for one in driver.spec.script.known}
            made = f"{driver.spec.script.checkpoints}/{folder(name, asked)}"
            more.setdefault("location", known.get(identity(name, asked)) or asked or made)
            driver.found[number] = FoundQuery(
                number, identity(name, asked), name, asked, started=started, **more
            )
            driver.runs[-number] = RunStatus(
                -number, 0, RunState.STARTING, started_at=self._now() if started else None
            )
            driver.facts[-number] = RunFacts(thread_alive=True)
            driver.places[-number] = driver.found[number].location
            return -number

    def says(self, application: str, *notes: str) -> None:
        """The driver has something to say about the script."""
        driver = self._driver(application, None)
        driver.script = ScriptReport(driver.script.state, (*driver.script.notes, *notes))

    def script_completes(self, application: str) -> None:
        """The script ends with 0, and nothing runs."""
        with self._lock:
            driver = self._driver(application, None)
            driver.script = ScriptReport(ScriptState.COMPLETED)
            driver.exit = self._exit("0", "0")

    def asks(self, application: str, name: str, *missing: int, asked: str = "") -> None:
        """The script starts an unknown query while known ones are missing: the driver leaves."""
        with self._lock:
            driver = self._driver(application, None)
            question = ScriptQuestion(identity(name, asked), name, asked, missing)
            driver.script = ScriptReport(ScriptState.FAILED, question=question)
            driver.error = identity_error(question)
            driver.exit = self._exit(str(SCRIPT_FAILED), "0")

    def asks_while_ending(self, application: str, name: str, *missing: int) -> None:
        """The same, while the queries that run still stop after their batches."""
        driver = self._driver(application, None)
        question = ScriptQuestion(identity(name, ""), name, "", missing)
        driver.script = ScriptReport(ScriptState.STOPPING, question=question)

    def script_fails(self, application: str, error: RunError, *, batch: int | None = None) -> None:
        """The script, or a query that it does not start again, fails: the driver leaves."""
        with self._lock:
            driver = self._driver(application, None)
            driver.script = ScriptReport(ScriptState.FAILED, failed_batch=batch)
            driver.error = error
            driver.exit = self._exit(str(SCRIPT_FAILED), "0")

    def script_is_failing(self, application: str) -> None:
        """The script has failed, and its driver has not left yet."""
        self._driver(application, None).script = ScriptReport(ScriptState.FAILED)

    def _adopt(self, driver: Any, entry: Any) -> None:
        """Give a found query's run the keys of its rows."""
        number = -entry.found
        if number not in driver.runs:  # its start was refused
            driver.runs[entry.run] = RunStatus(entry.run, entry.query, RunState.ENDED)
            driver.facts[entry.run], driver.places[entry.run] = RunFacts(), entry.checkpoint
            return
        identity_error = driver.runs.pop(number)
        changes = {"run": entry.run, "query": entry.query}
        driver.runs[entry.run] = RunStatus(
            **{
                **{name: getattr(identity_error, name) for name in RunStatus.__dataclass_fields__},
                **changes,
            }
        )
        driver.facts[entry.run] = driver.facts.pop(number)
        driver.places[entry.run] = driver.places.pop(number)
