"""Rename states, verdicts, incident kinds and restart blocks wherever a row contains their codes.

Open incidents keep their UUID and occurrence, which form the deduplication key of their messages.
Audit rows keep the words with which they were written, and so do texts.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode

from django.db import migrations, models
from django.db.models import Value
from django.db.models.functions import Concat, Substr

PHASES = {"BROKEN": "ON_HOLD", "LOST": "UNREACHABLE"}
VERDICTS = {"ZOMBIE": "QUERY_MISSING", "BLIND": "NO_TELEMETRY"}
KINDS = {"broken": "on-hold", "zombie": "query-missing", "blind": "no-telemetry"}
BLOCKS = {"BROKEN": "ON_HOLD"}
SKIPPED = {"held": "blocked"}
#: Fields in the JSON of answers.
FIELDS = {
    "hold": "restart_block",
    "hold_reason": "restart_block_reason",
    "hold_reason_code": "restart_block_reason_code",
}
#: Keys of JSON whose texts are codes.
CODES = {
    "phase": PHASES,
    "health": VERDICTS,
    "verdict": VERDICTS,
    "restart_block": BLOCKS,
    "kind": KINDS,
    "kinds": KINDS,
    "skipped": SKIPPED,
}
#: Keys of JSON whose values are users' own.
OWN = frozenset({"labels", "spec", "params", "options", "conf"})

Words = Mapping[str, str]


class Renaming:
    """The renaming of codes in one direction."""

    def __init__(self, *, back: bool = False) -> None:
        self.back = back
        self.codes = {key: self.words(words) for key, words in CODES.items()}
        self.fields = self.words(FIELDS)

    def words(self, words: Words) -> dict[str, str]:
        """Return the codes to replace, with what replaces them."""
        return {new: old for old, new in words.items()} if self.back else dict(words)

    def of_json(self, value: Any) -> Any:
        """Return a JSON value with its codes renamed; other texts stay."""
        if isinstance(value, list):
            return [self.of_json(part) for part in value]
        if not isinstance(value, dict):
            return value
        renamed = {}
        for key, part in value.items():
            if key in OWN:
                renamed[key] = part
                continue
            words = self.codes.get("restart_block" if key == "hold" else key, {})
            if value.get("code") == "OVERLAPPED" and key == "state":
                words = self.codes["phase"]
            if isinstance(part, str):
                part = words.get(part, part)
            elif isinstance(part, list):
                part = [words.get(one, one) if isinstance(one, str) else one for one in part]
            renamed[self.fields.get(key, key)] = self.of_json(part)
        return renamed

    def of_selectors(self, value: Any) -> Any:
        """Return a JSON value with the incident kinds in alert rules' selectors renamed."""
        if isinstance(value, list):
            return [self.of_selectors(part) for part in value]
        if not isinstance(value, dict):
            return value
        return {
            key: self.of_selector(part) if key == "selector" else self.of_selectors(part)
            for key, part in value.items()
        }

    def of_selector(self, selector: Any) -> Any:
        """Return a selector with its incident kinds renamed."""
        kinds = selector.get("kinds") if isinstance(selector, dict) else None
        if not isinstance(kinds, list):
            return selector
        words = self.codes["kinds"]
        return {**selector, "kinds": [words.get(k, k) if isinstance(k, str) else k for k in kinds]}

    def of_address(self, address: str) -> str:
        """Return a list's query string with the phases and verdicts in it renamed."""
        pairs = parse_qsl(address, keep_blank_values=True)
        return urlencode([(name, self.codes.get(name, {}).get(text, text)) for name, text in pairs])


def _update(rows: Any, column: str, words: Words) -> None:
    for before, after in words.items():
        rows.filter(**{column: before}).update(**{column: after})


def _rewrite(rows: Any, columns: tuple[str, ...], renamed_in: Callable[[Any], Any]) -> None:
    """Rename the codes in JSON columns, and write only the rows that change."""
    for pk, *values in _chunks(rows, columns):
        fields = {
            column: renamed
            for column, value in zip(columns, values, strict=True)
            if (renamed := renamed_in(value)) != value
        }
        if fields:
            rows.model.objects.filter(pk=pk).update(**fields)


def _chunks(rows: Any, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    last = 0
    while chunk := list(rows.filter(pk__gt=last).order_by("pk").values_list("pk", *columns)[:500]):
        yield from chunk
        last = chunk[-1][0]


def _rename(apps: Any, renaming: Renaming) -> None:
    def rows(model: str) -> Any:
        return apps.get_model("queries", model).objects.all()

    phases, verdicts = renaming.words(PHASES), renaming.words(VERDICTS)
    kinds, blocks = renaming.words(KINDS), renaming.words(BLOCKS)
    for model in ("Query", "Script"):
        _update(rows(model), "phase", phases)
    _update(rows("Query"), "verdict", verdicts)
    for model in ("Query", "Application"):
        _update(rows(model), "restart_block", blocks)
    for column in ("before", "after"):
        _update(rows("Transition").filter(subject="phase"), column, phases)
    for before, after in kinds.items():
        same = rows("Incident").filter(fingerprint__startswith=f"{before}:")
        rest = Substr("fingerprint", len(before) + 1)
        same.update(fingerprint=Substr(Concat(Value(after), rest), 1, 200))
    _update(rows("Incident"), "kind", kinds)
    for model in ("AlertRule", "Maintenance"):
        _rewrite(rows(model), ("selector",), renaming.of_selector)
    _rewrite(rows("Managed").filter(rule__isnull=False), ("applied",), renaming.of_selectors)
    _rewrite(rows("Delivery").filter(state="WAITING"), ("message",), renaming.of_json)
    _rewrite(rows("Deploy").filter(ended_at=None), ("asked",), renaming.of_selectors)
    _rewrite(rows("Deploy"), ("reason",), renaming.of_json)
    _rewrite(rows("DeployChange"), ("reason", "evidence"), renaming.of_json)
    _update(rows("PlannedRun"), "skipped", renaming.words(SKIPPED))
    overlapped = rows("PlannedRun").filter(skipped="overlap")
    _rewrite(overlapped, ("reason",), renaming.of_json)
    _rewrite(rows("Operation").exclude(detail={}), ("detail",), renaming.of_json)
    _rewrite(rows("KeptAnswer").filter(status__isnull=False), ("body",), renaming.of_json)
    for view in rows("SavedView"):
        address = renaming.of_address(view.address)
        if address != view.address:
            rows("SavedView").filter(pk=view.pk).update(address=address[:1000])


def rename(apps, schema_editor):
    _rename(apps, Renaming())


def restore(apps, schema_editor):
    _rename(apps, Renaming(back=True))
    if schema_editor.connection.vendor == "postgresql":
        # It alters no table with pending checks of the rows that have just changed.
        schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


OWN_RANK = models.GeneratedField(
    db_persist=True,
    expression=models.Case(
        models.When(models.Q(("risk", ""), _negated=True), then=models.Value(0)),
        models.When(
            models.Q(
                ("phase__in", ["BACKOFF", "FAILED", "ON_HOLD", "UNREACHABLE"]),
                models.Q(
                    ("phase__in", ("RUNNING", "STARTING")),
                    ("verdict__in", ["LAGGING", "NO_TELEMETRY", "QUERY_MISSING", "STALLED"]),
                ),
                ("phase_reason__in", ["STUCK", "WAITS_THREAD"]),
                models.Q(("desired", "RUNNING"), ("source_unreachable_since__isnull", False)),
                _connector="OR",
            ),
            then=models.Value(1),
        ),
        default=models.Value(2),
    ),
    output_field=models.PositiveSmallIntegerField(),
)
CHANGING = models.GeneratedField(
    db_persist=True,
    expression=models.Case(
        models.When(
            models.Q(
                models.Q(
                    ("desired", "STOPPED"),
                    models.Q(("phase__in", ["COMPLETED", "STOPPED"]), _negated=True),
                ),
                models.Q(
                    models.Q(("desired", "STOPPED"), _negated=True),
                    models.Q(("phase", "RUNNING"), _negated=True),
                    models.Q(
                        ("restart_block", ""),
                        models.Q(("generation", models.F("seen_generation")), _negated=True),
                        _connector="OR",
                    ),
                ),
                _connector="OR",
            ),
            then=models.Value(True),
        ),
        default=models.Value(False),
    ),
    output_field=models.BooleanField(),
)
BLOCK = models.CharField(
    choices=[("", ""), ("ON_HOLD", "ON_HOLD"), ("FAILED", "FAILED")], default="", max_length=8
)
INCIDENT_KINDS = (
    "failed on-hold crash-loop stalled query-missing no-telemetry lagging at-risk at-risk-stopped "
    "sql-refused source-unreachable records-lost late-records events-dropped state-limit threshold "
    "replay checkpoint-moved stuck-stop preflight-failing driver-deaths query-identity host-silent "
    "disk web-down database-down redis-down worker-down ticks-late ingester-down data-old "
    "no-channel channel-dead"
).split()
_EXISTING = models.Q(("archived_at__isnull", True))


class Migration(migrations.Migration):
    dependencies: ClassVar = [("queries", "0016_installs")]

    operations: ClassVar = [
        # Generated columns, and their indexes, cannot be altered.
        migrations.RemoveIndex("query", "query_listed"),
        migrations.RemoveIndex("query", "query_counted"),
        migrations.RemoveField("query", "own_rank"),
        migrations.RemoveField("query", "changing"),
        migrations.RenameField("application", "hold", "restart_block"),
        migrations.RenameField("application", "hold_reason", "restart_block_reason"),
        migrations.RenameField("query", "hold", "restart_block"),
        migrations.AlterField("application", "restart_block", BLOCK),
        migrations.AlterField("query", "restart_block", BLOCK),
        migrations.AlterField(
            "query",
            "phase",
            models.CharField(db_index=True, default="STOPPED", max_length=16),
        ),
        migrations.AlterField(
            "query", "verdict", models.CharField(blank=True, default="", max_length=16)
        ),
        migrations.AlterField(
            "script", "phase", models.CharField(default="STOPPED", max_length=16)
        ),
        migrations.AlterField(
            "incident",
            "kind",
            models.CharField(choices=[(kind, kind) for kind in INCIDENT_KINDS], max_length=24),
        ),
        migrations.AddField("query", "own_rank", OWN_RANK),
        migrations.AddField("query", "changing", CHANGING),
        migrations.AddIndex(
            "query",
            models.Index(condition=_EXISTING, fields=["own_rank", "name"], name="query_listed"),
        ),
        migrations.AddIndex(
            "query",
            models.Index(
                condition=_EXISTING,
                fields=["phase", "verdict", "own_rank", "changing"],
                name="query_counted",
            ),
        ),
        # Last: PostgreSQL alters no table with pending checks of rows that have just changed.
        migrations.RunPython(rename, restore),
    ]
