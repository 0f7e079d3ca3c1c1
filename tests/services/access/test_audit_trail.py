"""The audit log is written with each act, chained in one row, pruned by anchors, and guarded."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management.sql import emit_post_migrate_signal, emit_pre_migrate_signal
from django.db import DatabaseError, connection, transaction
from django.db.migrations import Migration

from queries.domain.access import Act
from queries.models.access.audit import AuditAnchor, AuditEntry, AuditHead, missing_guards, rules_of
from queries.services.access import audit
from queries.services.access.audit import chain_entries, prove, prune_audit_log, record_act

pytestmark = pytest.mark.django_db


def _numbers() -> list[int | None]:
    return list(AuditEntry.objects.order_by("number").values_list("number", flat=True))


@pytest.mark.guarantee("G-AUDIT-2")
def test_an_act_that_is_rolled_back_leaves_no_entry(now: datetime) -> None:
    with transaction.atomic():
        record_act(Act.SIGNED_IN, actor="ada", now=now)
        transaction.set_rollback(True)
    assert chain_entries() == 0
    assert _numbers() == []


def test_texts_that_a_database_would_refuse_are_made_storable(now: datetime) -> None:
    record_act(Act.EXPORTED, actor="a\x00da", now=now, subject="\ud800" * 300, what="x\x00" * 900)
    assert chain_entries() == 1
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.subject, entry.details["what"]) == ("ada", "?" * 255, "x" * 500)
    assert prove(now=now).entries == 1


@pytest.mark.django_db(transaction=True)
def test_writers_at_the_same_moment_make_one_chain(now: datetime) -> None:
    """Eight threads, each with transactions of its own, go on from each other's entries."""
    failed: list[Exception] = []

    def write(who: int) -> None:
        try:
            for number in range(10):
                record_act(Act.OPERATION, actor=f"user-{who}", now=now, nth=number)
        except Exception as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    chain_entries()  # what found the lock held by a thread that had looked before its commit
    assert failed == []
    assert _numbers() == list(range(1, 81))
    assert prove(now=now).head.number == 80


@pytest.mark.django_db(transaction=True)
def test_an_act_waits_for_no_other_act_that_is_not_committed(now: datetime) -> None:
    """One transaction holds its entry back; another's is written and chained meanwhile."""
    if connection.vendor == "sqlite":
        return  # has one writer at a time in any case

    def write() -> None:
        record_act(Act.SIGNED_IN, actor="quick", now=now)
        connection.close()

    with transaction.atomic():
        record_act(Act.SIGNED_IN, actor="slow", now=now)
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    assert list(AuditEntry.objects.order_by("number").values_list("actor", flat=True)) == [
        "quick",
        "slow",
    ]
    assert prove(now=now).head.number == 2


@pytest.mark.django_db(transaction=True)
def test_what_a_dead_process_left_is_chained_by_the_next(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dead:
        dead.setattr(audit, "chain_entries", lambda: 0)
        record_act(Act.SIGNED_IN, actor="ada", now=now)
    assert _numbers() == [None]
    record_act(Act.SIGNED_OUT, actor="ada", now=now)
    assert _numbers() == [1, 2]


@pytest.mark.guarantee("G-AUDIT-6")
def test_old_entries_go_in_slices_up_to_an_anchor(
    now: datetime, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(audit, "SLICE", 2)
    monkeypatch.setattr(audit, "REMOVED_AT_ONCE", 3)
    later = now + timedelta(days=settings.AUDIT_RETENTION_DAYS + 1)
    for at in [now] * 7 + [later] * 2:
        record_act(Act.SIGNED_IN, actor="ada", now=at)
    while chain_entries():
        pass
    assert prune_audit_log(now=later) == 7
    assert list(AuditAnchor.objects.values_list("number", flat=True)) == [3, 6, 7]
    assert prune_audit_log(now=later) == 0
    while chain_entries():
        pass
    assert _numbers() == [8, 9, 10]
    assert AuditEntry.objects.get(number=10).details == {"entries": 7}
    proof = prove(now=later)
    assert (proof.entries, proof.begins_after, proof.head.number) == (3, 7, 10)


def test_the_newest_entry_stays_however_old(now: datetime) -> None:
    record_act(Act.SIGNED_IN, actor="ada", now=now)
    chain_entries()
    assert prune_audit_log(now=now + timedelta(days=5000)) == 0
    assert _numbers() == [1]


@pytest.mark.guarantee("G-AUDIT-3")
@pytest.mark.django_db(transaction=True)
def test_a_table_that_a_migration_builds_anew_is_guarded_again(now: datetime) -> None:
    if connection.vendor != "sqlite":
        return  # alters tables in place
    record_act(Act.SIGNED_IN, actor="ada", now=now)
    chain_entries()
    plan = [(Migration("later", "queries"), False)]
    emit_pre_migrate_signal(verbosity=0, interactive=False, db="default", plan=[])
    assert missing_guards(connection) == []  # nothing is migrated
    emit_pre_migrate_signal(verbosity=0, interactive=False, db="default", plan=plan)
    with connection.schema_editor() as editor:
        rebuild: Any = editor
        for table in (AuditEntry, AuditHead, AuditAnchor):
            rebuild._remake_table(table)  # what each AlterField does on SQLite
    assert len(missing_guards(connection)) == len(rules_of(connection))
    emit_post_migrate_signal(verbosity=0, interactive=False, db="default")
    assert missing_guards(connection) == []
    with pytest.raises(DatabaseError, match="cannot be changed"), transaction.atomic():
        AuditEntry.objects.update(actor="eve")


def test_triggers_and_head_stand_there_from_the_first_migration_on() -> None:
    assert missing_guards(connection) == []
    assert AuditHead.objects.get().number == 0
