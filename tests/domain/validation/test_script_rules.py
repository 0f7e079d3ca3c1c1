"""What an application may say of its script: field, value and way out for what it may not."""

from typing import Any

import pytest

from queries.domain.definitions.code import application_brings_code
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.validation.application_rules import script_problems

UPLOAD = {"upload": f"sha256:{'a' * 64}"}


def spec(script: dict[str, Any] | None, **changes: Any) -> ApplicationSpec:
    form = {"kind": "script", "script": script, "python_path": ["/srv/jobs"], **changes}
    return ApplicationSpec.model_validate(form)


@pytest.mark.parametrize(
    "form",
    [
        spec({"file": "/srv/jobs/job.py", "arguments": ["--day", "2026-01-05", ""]}),
        spec({"module": "jobs.daily"}),
        spec({"file": "/srv/jobs/job.py", "submit": {"py_files": ["/srv/jobs/more.zip"]}}),
        spec(
            {"module": "jobs", "submit": {"executor_memory": "2g", "num_executors": 3}},
            master="yarn",
        ),
        spec({"file": "jobs/job.py"}, python_path=[], code=UPLOAD),
        spec({"module": "jobs.daily"}, python_path=[], code=UPLOAD),
        spec({"file": "/srv/jobs/job.py", "submit": {"files": ["data/x.csv"]}}, code=UPLOAD),
        spec({"module": "jobs.daily"}, schedule={"files": "s3a://in/orders"}),
        ApplicationSpec(),
    ],
)
def test_what_spark_submit_would_take_is_right(form: ApplicationSpec) -> None:
    assert script_problems(form) == []


@pytest.mark.parametrize(
    ("form", "field", "said"),
    [
        (spec(None), "script.file", "is missing."),
        (spec({}), "script.file", "is missing."),
        (spec({"file": "/srv/jobs/a.py", "module": "a"}), "script.file", "is set twice."),
        (spec({"file": "job.py"}), "script.file", "is not absolute."),
        (
            spec({"file": "/etc/job.py"}),
            "script.file",
            "is outside the application's code folders.",
        ),
        (
            spec({"file": "/srv/jobs/../../etc/a.py"}),
            "script.file",
            "is outside the application's code folders.",
        ),
        (
            spec({"file": "/etc/job.py"}, python_path=[], code=UPLOAD),
            "script.file",
            "is outside the application's code folders.",
        ),
        (
            spec({"file": "a/../../job.py"}, code=UPLOAD),
            "script.file",
            "points outside the application's code.",
        ),
        (spec({"file": "/srv/jobs/job.jar"}), "script.file", "is not a Python file."),
        (spec({"module": "jobs daily"}), "script.module", "does not name a module."),
        (
            spec({"file": "/srv/jobs/job.py"}, python_path=[]),
            "script.file",
            "cannot be found because the application has no code.",
        ),
        (
            spec({"module": "job"}, python_path=[]),
            "script.module",
            "cannot be found because the application has no code.",
        ),
        (
            spec({"module": "job", "arguments": ["x"] * 201}),
            "script.arguments",
            "arguments are too many.",
        ),
        (
            spec({"module": "job", "arguments": ["a", "b\0c"]}),
            "script.arguments.1",
            "is not a valid argument.",
        ),
        (
            spec({"module": "job", "submit": {"files": ["/etc/passwd"]}}),
            "script.submit.files.0",
            "is outside the application's code folders.",
        ),
        (
            spec({"module": "job", "submit": {"executor_memory": "much"}}, master="yarn"),
            "script.submit.executor_memory",
            "is not an amount of memory.",
        ),
        (
            spec({"module": "job", "submit": {"num_executors": 2}}),
            "script.submit.num_executors",
            "has no effect with local[2], where the driver is the only executor.",
        ),
        (
            spec({"module": "job"}, require_preflight=True),
            "require_preflight",
            "is not possible for a script because its queries are known only after it starts.",
        ),
        (
            spec({"module": "job"}, kind="queries"),
            "script",
            "applies only to applications of kind script.",
        ),
        (
            ApplicationSpec.model_validate({"schedule": {"cron": "0 3 * * *"}}),
            "schedule",
            "applies only to applications of kind script.",
        ),
        (
            spec({"module": "job"}, schedule={"after": "orders", "params": {"day": "{date}"}}),
            "schedule.params",
            "cannot be given to a script.",
        ),
        (
            spec({"module": "job"}, schedule={"cron": "0 3 * * *", "time_zone": "Mars"}),
            "schedule.time_zone",
            "is not an IANA time zone.",
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_field_with_a_way_out(
    form: ApplicationSpec, field: str, said: str
) -> None:
    [problem] = script_problems(form)
    assert (problem.field, problem.message) == (field, said)
    assert problem.way_out


def test_a_script_is_code() -> None:
    before, after = spec({"module": "a"}), spec({"module": "b"})
    assert application_brings_code(None, after) == ["python_path", "script"]
    assert application_brings_code(before, after) == ["script"]
    assert application_brings_code(after, after) == []
