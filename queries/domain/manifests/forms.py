"""A manifest: an application with its pools, a query or an alert rule, as written in a file.

The fields and their limits come from the definitions' own models, so a field added to a definition
is also added to its manifest. A manifest is complete: a field that it leaves out has its default
value, except for the checkpoint, the desired state and the team, which remain unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError, create_model

from queries.domain.alerts.forms import RuleForm, parse_rule
from queries.domain.definitions.labels import parse_labels
from queries.domain.definitions.parsing import parse_pool, shape_problems
from queries.domain.definitions.spec import (
    ApplicationSpec,
    PoolSpec,
    PythonQuery,
    SqlQuery,
    StrictForm,
)
from queries.domain.errors import Invalid, Problem
from queries.domain.states import Desired
from queries.domain.validation.query_rules import name_problems

ApiVersion = Literal["headgate/v1"]
API_VERSION: str = get_args(ApiVersion)[0]


class Kind(StrEnum):
    """The kind of object in a manifest."""

    APPLICATION = "Application"
    QUERY = "Query"
    ALERT_RULE = "AlertRule"


class Named(StrictForm):
    """The name of an alert rule."""

    name: str = Field(max_length=80)


class Labelled(Named):
    """The name and labels of an application; if it is new, `team` becomes its owner."""

    labels: dict[str, str] = Field(default_factory=dict)
    team: str = Field(default="", max_length=63)


class Placed(Labelled):
    """The name and labels of a query; without `application` it runs in its own application."""

    application: str = Field(default="", max_length=80)


class ApplicationManifestSpec(ApplicationSpec):
    """An application's definition, with its scheduler pools."""

    pools: tuple[PoolSpec, ...] = ()


class SqlQueryManifestSpec(SqlQuery):
    """A SQL query's definition, with its checkpoint location; "" for the default location."""

    checkpoint: str = Field(default="", max_length=1024)


class PythonQueryManifestSpec(PythonQuery):
    """A Python query's definition, with its checkpoint location; "" for the default location."""

    checkpoint: str = Field(default="", max_length=1024)


_RULE_FIELDS: Any = {
    name: (info.annotation, info) for name, info in RuleForm.model_fields.items() if name != "name"
}
_RuleSpec: Any = create_model("AlertRuleManifestSpec", __base__=StrictForm, **_RULE_FIELDS)


class _Manifest(StrictForm):
    api_version: ApiVersion = Field(alias="apiVersion")


class ApplicationManifest(_Manifest):
    """An application; `desired` applies only if it runs a script, and works as for queries."""

    kind: Literal["Application"]
    metadata: Labelled
    spec: ApplicationManifestSpec = Field(default_factory=ApplicationManifestSpec)
    desired: Desired | None = None


class QueryManifest(_Manifest):
    """A streaming query; without `desired`, its state is unchanged, or stopped if it is new."""

    kind: Literal["Query"]
    metadata: Placed
    spec: Annotated[SqlQueryManifestSpec | PythonQueryManifestSpec, Field(discriminator="kind")]
    desired: Desired | None = None


class AlertRuleManifest(_Manifest):
    """An alert rule, which defines who is notified about which incidents."""

    kind: Literal["AlertRule"]
    metadata: Named
    spec: _RuleSpec


MANIFEST: TypeAdapter[ApplicationManifest | QueryManifest | AlertRuleManifest] = TypeAdapter(
    Annotated[ApplicationManifest | QueryManifest | AlertRuleManifest, Field(discriminator="kind")]
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One well-formed manifest; validation decides whether it can work."""

    kind: Kind
    name: str
    spec: dict[str, Any]  # the definition's JSON form, without the fields below
    labels: dict[str, str]
    team: str = ""
    application: str = ""  # of a query; "": its own, or its current one
    checkpoint: str = ""  # of a query; "": the current or the default location
    pools: tuple[PoolSpec, ...] = ()  # of an application, sorted by name
    desired: Desired | None = None  # of a query or a script; None: unchanged

    @property
    def key(self) -> tuple[Kind, str]:
        """Return the key that must be unique within a set."""
        return self.kind, self.name


def parse_manifest(raw: Any) -> Manifest:
    """Return a manifest; raise `Invalid` with every error by field."""
    if not isinstance(raw, Mapping):
        way_out = "Write apiVersion, kind, metadata and spec."
        raise Invalid([Problem("manifest", str(raw)[:200], "is not an object.", way_out)])
    if raw.get("kind") not in set(Kind):
        way_out = f"Write one of {', '.join(Kind)}."
        if "apiVersion" not in raw:  # what `headgate get -o yaml` prints, or another file
            way_out += " `headgate export` prints existing objects as manifests; `get` does not."
        message = "is not a manifest kind."
        raise Invalid([Problem("kind", str(raw.get("kind", ""))[:200], message, way_out)])
    try:
        found = MANIFEST.validate_python(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error
    problems: list[Problem] = []
    spec = found.spec.model_dump(mode="json", by_alias=True)
    if isinstance(found, AlertRuleManifest):
        with _collecting(problems, "spec", name="metadata.name"):
            spec = parse_rule({"name": found.metadata.name, **spec}).model_dump(
                mode="json", by_alias=True, exclude={"name"}
            )
        _refuse(problems)
        return Manifest(Kind.ALERT_RULE, found.metadata.name, spec, {})
    named = found.metadata
    what = "query" if isinstance(found, QueryManifest) else "application"
    problems += _at("metadata", name_problems(named.name, what=what))
    with _collecting(problems, "metadata"):
        parse_labels(named.labels)
    if isinstance(found, QueryManifest):
        _refuse(problems)
        return Manifest(
            Kind.QUERY,
            named.name,
            spec,
            named.labels,
            team=named.team,
            application=found.metadata.application,
            checkpoint=spec.pop("checkpoint"),
            desired=found.desired,
        )
    if found.desired is not None and found.spec.kind != "script":
        way_out = "Remove it; each query has its own desired state."
        message = "applies only to applications that run a script; this one runs queries."
        problems.append(Problem("desired", str(found.desired), message, way_out))
    pools: dict[str, PoolSpec] = {}
    for index, pool in enumerate(spec.pop("pools")):
        with _collecting(problems, f"spec.pools.{index}"):
            form = parse_pool(pool)
            if form.name in pools:
                way_out = "Keep one of the two."
                problems.append(
                    Problem(f"spec.pools.{index}.name", form.name, "appears twice.", way_out)
                )
            pools[form.name] = form
    _refuse(problems)
    ordered = tuple(pools[name] for name in sorted(pools))
    return Manifest(
        Kind.APPLICATION,
        named.name,
        spec,
        named.labels,
        team=named.team,
        pools=ordered,
        desired=found.desired,
    )


class _collecting:
    """Collect the problems raised in the `with` block, with their fields below another field."""

    def __init__(self, problems: list[Problem], field: str, **moved: str) -> None:
        self._problems, self._field, self._moved = problems, field, moved

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if not isinstance(error, Invalid):
            return False
        self._problems += [
            Problem(self._moved[one.field], one.value, one.message, one.way_out)
            if one.field in self._moved
            else below(self._field, one)
            for one in error.problems
        ]
        return True


def below(field: str, problem: Problem) -> Problem:
    """Return a problem with a part as a problem with its object."""
    return Problem(f"{field}.{problem.field}", problem.value, problem.message, problem.way_out)


def _at(field: str, problems: list[Problem]) -> list[Problem]:
    return [below(field, one) for one in problems]


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Invalid(problems)


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one manifest."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headgate manifest",
        **MANIFEST.json_schema(by_alias=True),
    }
