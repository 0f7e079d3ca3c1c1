"""The audit log: rows that are added and never changed, and the triggers that enforce this.

They are dropped before migrations and created again afterwards: SQLite alters a table by building a
new one, drops the old table's triggers, and fails while another table's trigger refers to it.

Database triggers enforce that, and a chain of MACs reveals whether someone has
dropped the triggers (`queries.domain.access`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.signals import post_migrate, pre_migrate

from queries.domain.access import ACT_WORDS, START, Act, Link, Mark

#: Details that are shown without their names, and details that are omitted.
_SPEAK_FOR_THEMSELVES = frozenset({"verb", "what", "did", "of", "detail", "browser"})
_IDS = frozenset({"operation", "token_uuid"})


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


class AuditEntry(models.Model):
    """One action. Its entry is inserted together with it, and numbered after the commit."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    number = models.BigIntegerField(null=True, unique=True)  # 1, 2, 3…; None: not chained yet
    at = models.DateTimeField(db_index=True)
    kind = models.CharField(max_length=20)  # Act
    subject = models.CharField(max_length=255, default="")  # name of the object acted on
    actor = models.CharField(max_length=150, default="")  # user name; "" if unknown
    token = models.CharField(max_length=80, default="")  # its name; "" without a token
    token_id = models.CharField(max_length=36, default="")  # the token's UUID
    address = models.CharField(max_length=45, default="")  # of the client; "" on the command line
    details = models.JSONField(default=dict)  # texts, integers, flags and lists of them
    key = models.CharField(max_length=8)  # name of the key that sealed it
    seal = models.CharField(max_length=64)  # covers `content`
    mac = models.CharField(max_length=64, default="")  # covers number, seal and the previous MAC

    class Meta:
        ordering: ClassVar = ["-at", "-pk"]
        indexes: ClassVar = [  # used by `services.access.tokens` and the page's filter
            models.Index(fields=["actor", "kind", "at"], name="audit_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.actor or 'somebody'} {self.words} {self.subject}".strip()

    @property
    def words(self) -> str:
        """Return the action as shown on pages."""
        return ACT_WORDS[Act(self.kind)]

    @property
    def details_line(self) -> str:
        """Return the details as one line, without the operation's and the token's IDs."""
        details = {name: value for name, value in self.details.items() if value not in (None, "")}
        before, after = details.pop("before", ""), details.pop("after", "")
        moved = [f"{before} → {after}" if before and after else before or after]
        parts = [
            _listed(value) if name in _SPEAK_FOR_THEMSELVES else f"{name} {_listed(value)}"
            for name, value in details.items()
            if name not in _IDS
        ]
        return ", ".join([part for part in moved if part] + parts)

    def content(self) -> dict[str, Any]:
        """Return the content covered by the seal."""
        return {
            "uuid": str(self.uuid),
            "at": self.at.isoformat(timespec="microseconds"),
            "kind": str(self.kind),
            "subject": self.subject,
            "actor": self.actor,
            "token": self.token,
            "token_id": self.token_id,
            "address": self.address,
            "details": self.details,
            "key": self.key,
        }

    def link(self) -> Link:
        """Return the entry as a link of the chain; it must have its number."""
        assert self.number is not None
        return Link(self.number, self.key, self.content(), self.seal, self.mac)


class AuditHead(models.Model):
    """The single row with the chain's progress; the process that chains holds its lock."""

    number = models.BigIntegerField(default=0)
    mac = models.CharField(max_length=64, default=START)

    def __str__(self) -> str:
        return f"entry {self.number}"

    def mark(self) -> Mark:
        """Return the position in the chain."""
        return Mark(self.number, self.mac)


class AuditAnchor(models.Model):
    """Where the log begins after a removal: the number and the MAC of the last removed entry."""

    number = models.BigIntegerField(unique=True)
    mac = models.CharField(max_length=64)
    at = models.DateTimeField()  # of the pruning
    key = models.CharField(max_length=8)
    seal = models.CharField(max_length=64)  # only the key's holder can release entries

    def __str__(self) -> str:
        return f"after entry {self.number}"

    def mark(self) -> Mark:
        """Return the position in the chain."""
        return Mark(self.number, self.mac)

    def content(self) -> dict[str, Any]:
        """Return the content covered by the seal."""
        return {
            "anchor": self.number,
            "mac": self.mac,
            "at": self.at.isoformat(timespec="microseconds"),
            "key": self.key,
        }


_ENTRY, _HEAD, _ANCHOR = (m._meta.db_table for m in (AuditEntry, AuditHead, AuditAnchor))
#: The content of an entry. The chain fills in number and MAC, once.
_CONTENT_COLUMNS = [
    "id",
    "uuid",
    "at",
    "kind",
    "subject",
    "actor",
    "token",
    "token_id",
    "address",
    "details",
    "key",
    "seal",
]


@dataclass(frozen=True, slots=True)
class GuardTrigger:
    """The statements that one trigger rejects."""

    name: str
    table: str
    event: str  # INSERT, UPDATE or DELETE
    when: str  # SQL; "same" compares two values, one of which may be NULL
    message: str
    only: str = ""  # the database that needs it; "" for all


_ALWAYS = "1 = 1"
RULES = (
    GuardTrigger(
        "audit_entry_changed",
        _ENTRY,
        "UPDATE",
        "NOT (OLD.number IS NULL AND NEW.number IS NOT NULL AND "
        + " AND ".join(f"NEW.{column} same OLD.{column}" for column in _CONTENT_COLUMNS)
        + ")",
        "entries of the audit log cannot be changed",
    ),
    GuardTrigger(
        "audit_entry_deleted",
        _ENTRY,
        "DELETE",
        f"OLD.number IS NULL OR OLD.number > COALESCE((SELECT MAX(number) FROM {_ANCHOR}), 0)",
        "entries of the audit log cannot be deleted",
    ),
    GuardTrigger(
        "audit_head_changed",
        _HEAD,
        "UPDATE",
        "NEW.id <> OLD.id OR NEW.number <= OLD.number",
        "the audit log only grows",
    ),
    GuardTrigger("audit_head_deleted", _HEAD, "DELETE", _ALWAYS, "the audit log only grows"),
    # Entries up to an anchor may be deleted. An anchor without a matching entry would release all
    # of them, later ones too.
    GuardTrigger(
        "audit_anchor_made",
        _ANCHOR,
        "INSERT",
        f"NOT EXISTS (SELECT 1 FROM {_ENTRY} e, {_HEAD} h WHERE e.number = NEW.number "
        "AND e.mac = NEW.mac AND e.number < h.number) "
        f"OR NEW.number <= COALESCE((SELECT MAX(number) FROM {_ANCHOR}), 0)",
        "anchors cannot be made of what is no entry",
    ),
    GuardTrigger("audit_anchor_changed", _ANCHOR, "UPDATE", _ALWAYS, "anchors cannot be changed"),
    GuardTrigger("audit_anchor_deleted", _ANCHOR, "DELETE", _ALWAYS, "anchors cannot be deleted"),
    # INSERT OR REPLACE and UPDATE OR REPLACE remove the rows in their way without firing the
    # triggers of DELETE, unless the connection has asked for that (PRAGMA recursive_triggers).
    GuardTrigger(
        "audit_entry_replaced",
        _ENTRY,
        "INSERT",
        f"EXISTS (SELECT 1 FROM {_ENTRY} e "
        "WHERE e.id = NEW.id OR e.uuid = NEW.uuid OR e.number = NEW.number)",
        "entries of the audit log cannot be changed",
        only="sqlite",
    ),
    GuardTrigger(
        "audit_entry_taken_over",
        _ENTRY,
        "UPDATE",
        f"EXISTS (SELECT 1 FROM {_ENTRY} e WHERE e.id <> OLD.id AND e.number = NEW.number)",
        "entries of the audit log cannot be changed",
        only="sqlite",
    ),
    GuardTrigger(
        "audit_head_replaced",
        _HEAD,
        "INSERT",
        f"EXISTS (SELECT 1 FROM {_HEAD})",
        "the audit log only grows",
        only="sqlite",
    ),
    GuardTrigger(
        "audit_anchor_replaced",
        _ANCHOR,
        "INSERT",
        f"EXISTS (SELECT 1 FROM {_ANCHOR} a WHERE a.id = NEW.id)",
        "anchors cannot be changed",
        only="sqlite",
    ),
)
_EMPTIED = "audit_emptied"  # PostgreSQL only: TRUNCATE bypasses row triggers


def connect(sender: Any) -> None:
    """Create the triggers and the head's row whenever the app's tables are migrated."""
    pre_migrate.connect(_before_migrations, sender=sender, dispatch_uid="queries.audit_guard")
    post_migrate.connect(_after_migrations, sender=sender, dispatch_uid="queries.audit_guard")


def _before_migrations(using: str, plan: Sequence[Any] = (), **_: Any) -> None:
    if plan and _tables_exist(connections[using]):
        unguard(connections[using])


def _tables_exist(connection: BaseDatabaseWrapper) -> bool:
    return {_ENTRY, _HEAD, _ANCHOR} <= set(connection.introspection.table_names())


def _after_migrations(using: str, **_: Any) -> None:
    connection = connections[using]
    if _tables_exist(connection):
        guard(connection)
        AuditHead.objects.using(using).get_or_create(pk=1)


def rules_of(connection: BaseDatabaseWrapper) -> list[GuardTrigger]:
    """Return the rules that a connection's database needs."""
    return [rule for rule in RULES if rule.only in ("", connection.vendor)]


def guard(connection: BaseDatabaseWrapper) -> None:
    """Create the current triggers, replacing any existing ones."""
    unguard(connection)
    make = _sqlite if connection.vendor == "sqlite" else _postgresql
    with connection.cursor() as cursor:
        for rule in rules_of(connection):
            for statement in make(rule):
                cursor.execute(statement)
        if connection.vendor == "postgresql":
            cursor.execute(_function(_EMPTIED, _ALWAYS, "the audit log cannot be emptied", "NULL"))
            for table in (_ENTRY, _HEAD, _ANCHOR):
                cursor.execute(
                    f"CREATE TRIGGER {_EMPTIED} BEFORE TRUNCATE ON {table} "
                    f"FOR EACH STATEMENT EXECUTE FUNCTION {_EMPTIED}()"
                )


def unguard(connection: BaseDatabaseWrapper) -> None:
    """Drop the triggers."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            for rule in rules_of(connection):
                cursor.execute(f"DROP TRIGGER IF EXISTS {rule.name}")
            return
        for rule in rules_of(connection):
            cursor.execute(f"DROP TRIGGER IF EXISTS {rule.name} ON {rule.table}")
        for table in (_ENTRY, _HEAD, _ANCHOR):
            cursor.execute(f"DROP TRIGGER IF EXISTS {_EMPTIED} ON {table}")


def missing_guards(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the names of the missing triggers."""
    sql = (
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        if connection.vendor == "sqlite"
        else "SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D'"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql)
        installed_names = {row[0] for row in cursor.fetchall()}
    return sorted({rule.name for rule in rules_of(connection)} - installed_names)


def _sqlite(rule: GuardTrigger) -> list[str]:
    when = rule.when.replace(" same ", " IS ")
    return [
        f"CREATE TRIGGER {rule.name} BEFORE {rule.event} ON {rule.table} WHEN {when} "
        f"BEGIN SELECT RAISE(ABORT, '{rule.message}'); END"
    ]


def _postgresql(rule: GuardTrigger) -> list[str]:
    when = rule.when.replace(" same ", " IS NOT DISTINCT FROM ")
    row = "OLD" if rule.event == "DELETE" else "NEW"
    return [
        _function(rule.name, when, rule.message, row),
        f"CREATE TRIGGER {rule.name} BEFORE {rule.event} ON {rule.table} "
        f"FOR EACH ROW EXECUTE FUNCTION {rule.name}()",
    ]


def _function(name: str, when: str, message: str, row: str) -> str:
    return (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN IF {when} THEN RAISE EXCEPTION '{message}'; END IF; RETURN {row}; END $$"
    )
