"""The form of an application's definition, and of a scheduler pool's."""

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from queries.domain.definitions.spec import RestartPolicy
from queries.domain.errors import Problem
from queries.views.definitions.fields import (
    ConnectorsField,
    LinesField,
    PairsField,
    choice,
    number,
    text,
)

FAILURE_SCOPES = [
    ("query", "only that query restarts, the others keep running"),
    ("application", "the driver restarts with all its queries"),
]
SCHEDULER_MODES = [
    ("FAIR", "FAIR: pools share the cores by weight"),
    ("FIFO", "FIFO: the first job takes all the cores it can use"),
]
_POLICY = RestartPolicy()


class ApplicationSpecForm(forms.Form):
    """ApplicationSpec as fields; `spec()` gives its JSON form."""

    description = text(
        "Purpose",
        hint="Shown on its page.",
        max_length=2000,
    )
    master = text(
        "Spark master",
        hint="local[N] runs N tasks at a time on one host; or spark://host:port.",
        mono=True,
        initial="local[2]",
    )
    memory = text("Driver memory", hint="spark.driver.memory, as in 1g or 1536m.", initial="1g")
    scheduler_mode = choice("Scheduler", SCHEDULER_MODES)
    failure_scope = choice("When a query fails", FAILURE_SCOPES)
    conf = PairsField(
        "Spark configuration",
        hint="One key = value per line. Takes effect with a new driver.",
        placeholder="spark.sql.shuffle.partitions = 4",
    )
    env = PairsField(
        "Environment",
        hint="For a secret, use a reference: env:NAME or file:NAME. The driver resolves it.",
        placeholder="API_TOKEN = env:API_TOKEN",
        rows=2,
    )
    python_path = LinesField(
        "Code folders",
        hint="Absolute paths, one per line, under an allowed root. Each driver runs from a copy.",
        placeholder="/srv/streams/flights",
    )
    listeners = LinesField(
        "Your listeners",
        hint="module:Class of a StreamingQueryListener, one per line. Each call is timed.",
        placeholder="monitoring:AuditListener",
    )
    connectors = ConnectorsField()
    base_delay_s = number(
        "First delay (s)", hint="Delay before the second retry; it doubles after that."
    )
    max_delay_s = number("Longest delay (s)", hint="The delay does not grow beyond this.")
    healthy_after_s = number(
        "Healthy after (s)",
        hint="After running this long with a new commit, the failure count resets.",
    )
    poison_limit = number(
        "Identical failures at most",
        hint="On the same batch without a commit; then the query is broken.",
        whole=True,
    )
    probe_every_s = number("Retry probe every (s)", hint="How often a broken query is retried.")
    restart_on_stall = forms.BooleanField(
        label="Restart stalled queries",
        required=False,
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )
    require_preflight = forms.BooleanField(
        label="Require a preflight: a revision starts only after it has passed one on its "
        "checkpoint",
        required=False,
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )

    def spec(self) -> dict[str, Any]:
        """Return the definition as typed; fields left empty take their defaults."""
        data = self.cleaned_data
        policy = {
            name: value
            for name in RestartPolicy.model_fields
            if (value := data.get(name)) not in (None, "") and value != getattr(_POLICY, name)
        }
        plain = ("description", "master", "memory", "scheduler_mode", "failure_scope")
        many = ("conf", "env", "python_path", "connectors", "listeners", "require_preflight")
        spec = {name: data[name] for name in (*plain, *many) if data.get(name)}
        return {**spec, "policy": policy} if policy else spec

    def changed_policy(self) -> bool:
        """Tell whether a restart setting differs from its default or is at fault."""
        fields = RestartPolicy.model_fields
        if self.is_bound and any(name in self.errors for name in fields):
            return True
        default = {name: str(getattr(_POLICY, name)).removesuffix(".0") for name in fields}
        return any(
            str(self[name].value()).removesuffix(".0") not in ("", "None", default[name])
            for name in fields
        )


class NewApplicationForm(ApplicationSpecForm):
    """An application to be: its name and its definition."""

    name = text(
        "Name",
        hint="Lowercase letters, digits and . _ - only. It cannot be changed later.",
        required=True,
        attrs={"autofocus": True},
    )
    field_order = ["name"]


def initial_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields' values for a definition in JSON form."""
    return {**RestartPolicy().model_dump(), **spec, **dict(spec.get("policy") or {})}


def show_problems(form: forms.Form, problems: Iterable[Problem], *, prefix: str = "") -> None:
    """Put each problem at its field, and at the top of the form where it has none."""
    for problem in problems:
        path = problem.field.removeprefix(prefix).removeprefix("spec.").removeprefix("policy.")
        name, _, rest = path.partition(".")
        if name in form.fields:
            add_problem(form, name, problem, about=rest)
        else:
            add_problem(form, None, problem, about=path)


#: Messages that begin with one of these are whole sentences; others speak of the value.
_WHOLE = frozenset({"a", "an", "the", "no", "query", "pool", "application"})


def add_problem(form: forms.Form, field: str | None, problem: Problem, *, about: str) -> None:
    """Add one problem with its way out, as a sentence that can stand at its field.

    `about` is the part of the path that the field's label does not say: "path" of
    "sources.0.options.path"; the number of a line says nothing and is left out.
    """
    about = "" if about.isdigit() else about
    message = problem.message
    telling = 0 < len(problem.value) <= 60 and problem.value not in message
    value = f"“{problem.value}”" if telling else ""
    if message[:1].islower() and message.split(" ", 1)[0] not in _WHOLE:
        subject = " ".join(part for part in (about, value) if part) or "This"
        told = f"{subject} {message}"
    else:
        told = f"{about}: {message}" if about else f"{message[:1].upper()}{message[1:]}"
    form.add_error(field, f"{told} {problem.way_out}".strip())


class PoolForm(forms.Form):
    """A scheduler pool."""

    name = text("Name", hint="Queries refer to the pool by this name.", required=True)
    weight = number(
        "Weight",
        hint="When both are busy, a pool of weight 2 gets twice the cores of a pool of weight 1.",
        whole=True,
        initial=1,
    )
    min_share = number(
        "minShare (cores)",
        hint="Served before weights count. 1 keeps a light query fast next to heavy ones.",
        whole=True,
        initial=0,
    )
    mode = choice(
        "Mode within the pool",
        [("FAIR", "FAIR: its queries take turns"), ("FIFO", "FIFO: first come, first served")],
    )

    def spec(self) -> dict[str, Any]:
        """Return the pool in its JSON form."""
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}
