"""What an advice tells somebody to do, the API accepts for the subject that failed.

Every advice that there is is worded for every kind of subject. The acts in its words are found by
their phrases, and each is requested of a subject that has failed so.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.definitions.spec import PythonQuery
from queries.domain.failures.categories import (
    GENERAL,
    Category,
    FailureAdvice,
    FailureSubject,
    fitted,
)
from queries.domain.failures.diagnosis import classify
from queries.domain.failures.next_steps import ActionKind, FailedRun, offered_actions
from queries.domain.failures.rules import (
    CONDITION_RULES,
    CONNECT,
    MESSAGE_RULES,
    TYPE_RULES,
    module_missing,
    package_missing,
)
from queries.domain.protocol import RunError
from queries.domain.states import DOWN_PHASES, Phase
from queries.models.definitions import Checkpoint, Query
from tests.checkpoints.forms import write_checkpoint
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

LOST = RunError("KAFKA_DATA_LOSS.START_OFFSET_RESET", "x.KafkaIllegalStateException", "Gone.", "")
OFFSETS = {"to": "offsets", "offsets": {"flights": {"0": 40}}}
SWITCHES = {
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.stateStore.valueStateSchemaEvolutionThreshold": "64",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


class Failed:
    """A subject that has failed and is held, with a checkpoint of twelve batches.

    One of SQL reads files; the others read Kafka, unless they do `files`.
    """

    def __init__(
        self, subject: FailureSubject, root: Path, caller: APIClient, *, files: bool = False
    ) -> None:
        self.subject, self.caller = subject, caller
        self.of_script = subject in (FailureSubject.SCRIPT, FailureSubject.APPLICATION)
        code = root / "code"
        code.mkdir()
        (code / "job.py").write_text("def build(spark, params):\n    return None\n")
        data = root / "data"
        data.mkdir()
        if self.of_script:
            stage: Stage = ScriptStage(str(code))
            stage.now = timezone.now()
            assert isinstance(stage, ScriptStage)
            stage.running("counts")
            self.name, self.application = "job/counts", "job"
        else:
            stage = Stage()
            stage.now = timezone.now()
            self.name = self.application = "delays"
            stage.application("delays", python_path=[str(code)])
            stage.query("delays", "delays", **self._spec(data))
            if subject is FailureSubject.FUNCTION:
                self.row.revisions.update(kind="python", spec=self._spec(data))
            stage.up("delays")
        place = root / "checkpoints" / "there"
        Checkpoint.objects.filter(query=self.row).update(location=f"file://{place}")
        source = "file" if files or subject is FailureSubject.SQL else "kafka"
        write_checkpoint(place, batches=range(12), source=source, in_flight=True)
        if subject is FailureSubject.APPLICATION:
            assert isinstance(stage, ScriptStage)
            stage.fail_script(LOST)
        else:
            stage.fail(self.name, LOST, batch=12)
        self.stage = stage

    def _spec(self, data: Path) -> dict[str, Any]:
        if self.subject is FailureSubject.FUNCTION:
            form: dict[str, Any] = PythonQuery(function="job:build").model_dump(mode="json")
            return form
        options = {"path": f"file://{data}"}
        source = {"name": "flights", "format": "json", "options": options, "schema": "a int"}
        return {"sources": [source], "sink": {"format": "noop"}}

    @property
    def row(self) -> Query:
        return Query.objects.get(name=self.name)

    # --- requests -----------------------------------------------------------------------

    def post(self, verb: str, body: dict[str, Any] | None = None) -> Any:
        name = self.name.replace("/", "~")
        return self.caller.post(f"/api/v1/queries/{name}/{verb}/", body or {}, format="json")

    def of_application(self, verb: str) -> Any:
        address = f"/api/v1/applications/{self.application}/{verb}/"
        return self.caller.post(address, {}, format="json")

    def change(self, **fields: Any) -> Any:
        """Change the query's definition."""
        return self._change(f"/api/v1/queries/{self.name}/", fields)

    def change_application(self, **fields: Any) -> Any:
        return self._change(f"/api/v1/applications/{self.application}/", fields)

    def _change(self, address: str, fields: dict[str, Any]) -> Any:
        spec = self.caller.get(address).json()["spec"] | fields
        return self.caller.patch(address, {"spec": spec}, format="json")

    def edit(self) -> Any:
        return self.change_application(memory="2g") if self.of_script else self.change(pool="")


Request = Callable[[Failed], Any]
Make = Callable[..., Failed]

#: Of a function that reads tables; one that reads Kafka is led to offsets.
OF_TABLES = r"reset the query to earliest"
#: The phrase of an act in an advice -> what it asks of the API.
REQUESTS: dict[str, Request] = {
    OF_TABLES: lambda one: one.post("reset", {"to": "earliest"}),
    r"reset (the query|it)? ?to (specific )?offsets": lambda one: one.post(
        "reset", OFFSETS if one.subject is FailureSubject.FUNCTION else {"to": "earliest"}
    ),
    r"reset the query(?=, which| to another position)": lambda one: one.post(
        "reset", OFFSETS if one.subject is FailureSubject.FUNCTION else {"to": "earliest"}
    ),
    r"rewind to (an earlier|a|the last committed) batch": lambda one: one.post(
        "rewind", {"batch": 11}
    ),
    r"(re)?start the query": lambda one: one.post("start"),
    r"a start releases it": lambda one: one.post("start"),
    r"restart the application( and start the query)?": lambda one: one.of_application("restart"),
    r"(?<!re)start the application": lambda one: one.of_application("start"),
    r"change the (definition|application)\b": lambda one: one.edit(),
    r"application's packages field": lambda one: one.change_application(packages="idna==3.10"),
    r"application's master field": lambda one: one.change_application(master="local[3]"),
    r"in the configuration": lambda one: one.change_application(conf=SWITCHES),
}
#: Acts that need a real part, with the test that asks for them: (subjects, where).
ELSEWHERE = {
    r"skip the lost data": ({FailureSubject.SQL}, "kafka/test_lag_and_loss.py"),
    r"post to the query's async-off/": (
        {FailureSubject.SQL},
        "api/triggers/test_async_progress.py",
    ),
    r"confirm the takeover": (
        {FailureSubject.SQL, FailureSubject.FUNCTION},
        "web/failures/test_failures_pages.py",
    ),
}
#: Words of acts of Headgate's; what is left of them once the phrases are taken out is unknown.
ACT = re.compile(
    r"\b(reset|rewind|restart|start|skip the lost|take over)\b(?! reading| of its| from a "
    r"backup|ing)"
)
#: Not acts of Headgate's: what Spark or the script does.
NOT_ACTS = re.compile(
    r"cannot reset a query|its other queries restart|before the start\b|needs a restart"
)


def _advices() -> list[FailureAdvice]:
    rules = (*CONDITION_RULES, *MESSAGE_RULES, *TYPE_RULES)
    own = [CONNECT, package_missing("pandas"), package_missing(""), module_missing("requests")]
    return [*GENERAL.values(), *(rule.advice for rule in rules), *own]


def _texts(subject: FailureSubject) -> set[str]:
    refused = classify(
        error_class="",
        type_name="",
        root_cause="Held.",
        message="",
        refused="foreign",
        subject=subject,
    )
    return {fitted(advice.way_out, subject).lower() for advice in _advices()} | {
        refused.way_out.lower()
    }


def _acts(subject: FailureSubject) -> set[str]:
    found = {
        pattern for pattern in REQUESTS for text in _texts(subject) if re.search(pattern, text)
    }
    assert found
    return found


CASES = [(subject, pattern) for subject in FailureSubject for pattern in sorted(_acts(subject))]


@pytest.fixture
def failed(tmp_path: Path, settings: Any, as_author: APIClient) -> Make:
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.CODE_ROOTS = [tmp_path / "code"]
    settings.ALLOWED_PATHS = [str(tmp_path)]
    return lambda subject, files=False: Failed(subject, tmp_path, as_author, files=files)


@pytest.mark.parametrize(("subject", "pattern"), CASES)
def test_each_advised_act_is_accepted(failed: Make, subject: FailureSubject, pattern: str) -> None:
    answer = REQUESTS[pattern](failed(subject, pattern == OF_TABLES))
    assert answer.status_code in (200, 202), json.dumps(answer.json())


@pytest.mark.parametrize("subject", FailureSubject)
def test_no_advice_names_an_act_that_is_not_asked_for_here(subject: FailureSubject) -> None:
    unknown = []
    for text in _texts(subject):
        left = text
        for pattern, (subjects, _) in ELSEWHERE.items():
            assert subject in subjects or not re.search(pattern, left), text
            left = re.sub(pattern, "", left)
        for pattern in REQUESTS:
            left = re.sub(pattern, "", left)
        unknown += [text] if ACT.search(NOT_ACTS.sub("", left)) else []
    assert unknown == []


def test_what_is_asked_for_elsewhere_has_a_test_there() -> None:
    for _, where in ELSEWHERE.values():
        assert (Path(__file__).parents[2] / where).is_file(), where


def test_a_function_over_kafka_is_not_led_to_a_reset_that_is_refused(
    failed: Make,
) -> None:
    assert failed(FailureSubject.FUNCTION).post("reset", {"to": "earliest"}).status_code == 409
    assert not any("reset the query to earliest" in text for text in _lost(FailureSubject.FUNCTION))


def test_a_scripts_query_is_not_led_to_a_reset(failed: Make) -> None:
    assert failed(FailureSubject.SCRIPT).post("reset", OFFSETS).status_code == 409
    assert not any("reset the query" in text for text in _texts(FailureSubject.SCRIPT))


def _lost(subject: FailureSubject) -> set[str]:
    return {
        fitted(advice.way_out, subject).lower()
        for advice in _advices()
        if advice.category is Category.SOURCE_LOST and "{from_start}" not in advice.way_out
    }


# --- what pages offer ---------------------------------------------------------------------------

#: Act -> what a page's button comes to.
BUTTONS: dict[ActionKind, Request] = {
    ActionKind.EDIT: lambda one: one.edit(),
    ActionKind.BACK: lambda one: one.change(pool=""),
    ActionKind.REWIND: lambda one: one.post("rewind", {"batch": 11}),
    ActionKind.RESET: lambda one: one.post(
        "reset", OFFSETS if one.subject is FailureSubject.FUNCTION else {"to": "earliest"}
    ),
    ActionKind.AGAIN: lambda one: (
        one.of_application("restart") if one.of_script else one.post("start")
    ),
    ActionKind.STOP: lambda one: (
        one.of_application("stop") if one.of_script else one.post("stop", {"mode": "now"})
    ),
}


def _offered(subject: FailureSubject) -> set[ActionKind]:
    return {
        way.act
        for category in Category
        for phase in sorted({*DOWN_PHASES, Phase.STOPPED})
        for way in offered_actions(
            FailedRun(
                category,
                Phase(phase),
                wanted=True,
                batch=12,
                revision=2,
                newest=2,
                good=1,
                subject=subject,
            )
        )
    }


OF_QUERIES = [subject for subject in FailureSubject if subject is not FailureSubject.APPLICATION]


@pytest.mark.parametrize(
    ("subject", "act"),
    [(subject, act) for subject in OF_QUERIES for act in sorted(_offered(subject))],
)
def test_each_offered_act_is_accepted(
    failed: Make, subject: FailureSubject, act: ActionKind
) -> None:
    answer = BUTTONS[act](failed(subject))
    assert answer.status_code in (200, 202), json.dumps(answer.json())


def test_every_act_is_offered_to_a_query_that_headgate_defines() -> None:
    assert _offered(FailureSubject.SQL) == _offered(FailureSubject.FUNCTION) == set(ActionKind)
    assert _offered(FailureSubject.SCRIPT) == {
        ActionKind.EDIT,
        ActionKind.REWIND,
        ActionKind.AGAIN,
        ActionKind.STOP,
    }
