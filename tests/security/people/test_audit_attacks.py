"""Attacks on the audit log by somebody who can write to the database but does not have SECRET_KEY.

Each is tried twice: the triggers refuse it, and where they were taken away `verify_audit` names it.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from queries.domain.access import Act, Broken
from queries.models.access.audit import (
    AuditAnchor,
    AuditEntry,
    AuditHead,
    guard,
    missing_guards,
    rules_of,
    unguard,
)
from queries.services.access import audit
from queries.services.access.audit import chain_entries, prune_audit_log, record_act

pytestmark = pytest.mark.django_db


def _write(count: int, now: datetime, **details: Any) -> None:
    for number in range(count):
        about = {"nth": number, **details}
        record_act(Act.SIGNED_IN, actor="ada", now=now + timedelta(seconds=number), **about)
    chain_entries()


@pytest.fixture
def log(db: None, now: datetime) -> None:
    """Write five entries."""
    _write(5, now)


def _sql(statement: str, *given: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, given)


@pytest.fixture
def unguarded(log: None) -> Iterator[None]:
    """Take the triggers away, as the database's owner can."""
    unguard(connection)
    yield
    guard(connection)


ENTRY, HEAD, ANCHOR = (m._meta.db_table for m in (AuditEntry, AuditHead, AuditAnchor))
REFUSED = [
    f"UPDATE {ENTRY} SET actor = 'eve' WHERE number = 3",
    f"UPDATE {ENTRY} SET mac = '' WHERE number = 3",
    f"UPDATE {ENTRY} SET number = NULL WHERE number = 3",
    f"UPDATE {ENTRY} SET number = 9 WHERE number = 3",
    f"DELETE FROM {ENTRY} WHERE number = 5",
    f"DELETE FROM {ENTRY}",
    f"UPDATE {HEAD} SET number = 3",
    f"DELETE FROM {HEAD}",
    *(
        f"INSERT INTO {ANCHOR} (number, mac, at, key, seal) "
        f"SELECT {number}, {mac}, at, key, seal FROM {ENTRY} WHERE number = 5"
        # An entry that is not there yet, the newest, and one whose MAC is another.
        for number, mac in ((1_000, "mac"), (5, "mac"), (3, "mac"))
    ),
]


@pytest.mark.guarantee("G-AUDIT-3", "G-AUDIT-6")
@pytest.mark.parametrize("statement", REFUSED)
def test_the_database_refuses(log: None, statement: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        _sql(statement)
    assert re.search(r"cannot be (changed|deleted|made)|only grows", str(refused.value))
    assert AuditEntry.objects.filter(actor="ada").count() == 5


@pytest.mark.parametrize("statement", REFUSED)
def test_without_its_triggers_the_database_takes_all_of_that(
    unguarded: None, statement: str
) -> None:
    _sql(statement)


_REST = "at, kind, subject, actor, token, token_id, address, details, key, seal, mac"
_EVES = _REST.replace("actor", "'eve'")
REPLACED = [
    *(
        f"REPLACE INTO {ENTRY} ({columns}, {_REST}) SELECT {values}, {_EVES} "
        f"FROM {ENTRY} WHERE number = 3"
        for columns, values in (
            ("id, uuid, number", "id, 'f' || substr(uuid, 2), number + 10"),
            ("uuid, number", "uuid, number + 10"),
            ("uuid, number", "'f' || substr(uuid, 2), number"),
        )
    ),
    f"INSERT OR REPLACE INTO {HEAD} (id, number, mac) VALUES (1, 2, '')",
    f"REPLACE INTO {ANCHOR} (id, number, mac, at, key, seal) "
    f"SELECT (SELECT id FROM {ANCHOR}), number, mac, at, key, seal FROM {ENTRY} WHERE number = 4",
    f"UPDATE OR REPLACE {ENTRY} SET number = 5, mac = '' WHERE number IS NULL",
]


@pytest.mark.guarantee("G-AUDIT-3")
@pytest.mark.parametrize("statement", REPLACED)
def test_sqlite_replaces_no_row(log: None, now: datetime, statement: str) -> None:
    if connection.vendor != "sqlite":
        return  # has no REPLACE
    record_act(Act.SIGNED_IN, actor="ada", now=now)  # not chained yet
    _sql(
        f"INSERT INTO {ANCHOR} (number, mac, at, key, seal) "
        f"SELECT number, mac, at, key, seal FROM {ENTRY} WHERE number = 2"
    )
    before = [list(model.objects.values()) for model in (AuditEntry, AuditHead, AuditAnchor)]
    with pytest.raises(DatabaseError, match=r"cannot be (changed|made)|only grows"):
        _sql(statement)
    after = [list(model.objects.values()) for model in (AuditEntry, AuditHead, AuditAnchor)]
    assert after == before


@pytest.mark.parametrize("statement", REPLACED)
def test_without_its_triggers_sqlite_replaces_rows(
    unguarded: None, now: datetime, statement: str
) -> None:
    if connection.vendor == "sqlite":
        record_act(Act.SIGNED_IN, actor="ada", now=now)
        _sql(statement)


def test_the_whole_log_cannot_be_emptied_at_once(log: None) -> None:
    if connection.vendor == "sqlite":
        return  # has no TRUNCATE
    with pytest.raises(DatabaseError, match="cannot be emptied"):
        _sql(f"TRUNCATE {ENTRY}")


@pytest.mark.django_db(transaction=True)
def test_djangos_own_command_cannot_empty_it(now: datetime) -> None:
    _write(1, now)
    with pytest.raises(CommandError, match="couldn't be flushed"):
        call_command("flush", interactive=False, verbosity=0)
    assert AuditEntry.objects.count() == 1


def _cut_the_tail() -> None:
    _sql(f"DELETE FROM {ENTRY} WHERE number > 3")


def _swap_the_head() -> None:
    _sql(f"UPDATE {HEAD} SET mac = %s", "f" * 64)


def _forge_a_row() -> None:
    """Insert a copy of the last entry, under the next number and another name."""
    row = AuditEntry.objects.get(number=5)
    AuditEntry.objects.create(
        number=6, at=row.at, kind=row.kind, actor="eve", key=row.key, seal=row.seal, mac=row.mac
    )


def _forge_a_row_that_waits() -> None:
    """Insert a row without a number, for Headgate itself to chain."""
    row = AuditEntry.objects.get(number=5)
    AuditEntry.objects.create(at=row.at, kind=row.kind, actor="eve", key=row.key, seal=row.seal)
    assert chain_entries() == 0


def _forge_an_anchor() -> None:
    """Let old entries go, by an anchor of one's own."""
    row = AuditEntry.objects.get(number=3)
    AuditAnchor.objects.create(number=3, mac=row.mac, at=row.at, key=row.key, seal=row.seal)
    AuditEntry.objects.filter(number__lte=3).delete()


def _swap_two_rows() -> None:
    _sql(f"UPDATE {ENTRY} SET number = 99 WHERE number = 2")
    _sql(f"UPDATE {ENTRY} SET number = 2 WHERE number = 3")
    _sql(f"UPDATE {ENTRY} SET number = 3 WHERE number = 99")


ATTACKS: list[tuple[Callable[[], None], str]] = [
    (
        lambda: _sql(f"UPDATE {ENTRY} SET actor = 'eve' WHERE number = 2"),
        "entry 2: its content was changed",
    ),
    (
        lambda: _sql(f"UPDATE {ENTRY} SET address = '10.0.0.1' WHERE number = 4"),
        "entry 4: its content was changed",
    ),
    (lambda: _sql(f"DELETE FROM {ENTRY} WHERE number = 2"), "entry 2: missing"),
    (_cut_the_tail, "entry 4: missing: 5 entries were written"),
    (_swap_the_head, "entry 5: its MAC differs from the one in the head"),
    (lambda: _sql(f"DELETE FROM {HEAD}"), "the head of the chain is missing"),
    (_forge_a_row, "entry 6: was not written by Headgate"),
    (_forge_a_row_that_waits, "was not written by Headgate"),
    (_forge_an_anchor, "entry 3: the anchor after it was not made by Headgate"),
    (_swap_two_rows, "entry 2: does not follow the entry before it"),
]


@pytest.mark.guarantee("G-AUDIT-4")
@pytest.mark.parametrize(("attack", "says"), ATTACKS)
def test_an_attack_without_the_triggers_is_named(
    unguarded: None, now: datetime, attack: Callable[[], None], says: str
) -> None:
    attack()
    guard(connection)
    with pytest.raises(Broken, match=says):
        audit.prove(now=now)


@pytest.mark.parametrize(("attack", "says"), ATTACKS[:4])
def test_whoever_does_not_look_at_the_chain_sees_nothing(
    unguarded: None,
    now: datetime,
    attack: Callable[[], None],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same attacks pass where nothing is walked: it is the walk that notices them."""
    attack()
    guard(connection)
    monkeypatch.setattr(audit, "walk", lambda links, **given: given["head"])
    assert audit.prove(now=now).head.number == 5


def test_triggers_that_are_gone_are_named(unguarded: None, now: datetime) -> None:
    assert missing_guards(connection) == sorted(rule.name for rule in rules_of(connection))
    with pytest.raises(Broken, match=r"triggers are missing .* run manage\.py migrate"):
        audit.prove(now=now)


def _verify(**given: Any) -> str:
    out = StringIO()
    call_command("verify_audit", stdout=out, **given)
    return out.getvalue()


def _back_to(number: int) -> None:
    """Cut the log, and put the head back that it had then: all of it was written by Headgate."""
    row = AuditEntry.objects.get(number=number)
    _sql(f"DELETE FROM {ENTRY} WHERE number > %s", number)
    _sql(f"UPDATE {HEAD} SET number = %s, mac = %s", number, row.mac)


@pytest.mark.guarantee("G-AUDIT-5")
def test_a_tail_cut_with_its_head_is_noticed_by_an_exported_head_alone(
    unguarded: None, tmp_path: Path, now: datetime
) -> None:
    guard(connection)
    head = tmp_path / "head.json"
    assert "is complete: 5 entries, the last is 5" in _verify(head_out=head)
    unguard(connection)
    _back_to(3)
    guard(connection)
    assert "is complete: 3 entries" in _verify()
    with pytest.raises(CommandError, match="entry 4: missing: the exported head is entry 5"):
        _verify(head=head)


def test_a_tail_written_again_is_not_the_one_that_was_exported(
    unguarded: None, tmp_path: Path, now: datetime
) -> None:
    guard(connection)
    head = tmp_path / "head.json"
    _verify(head_out=head)
    unguard(connection)
    _back_to(3)
    guard(connection)
    _write(4, now, other=True)
    assert "is complete: 7 entries" in _verify()
    with pytest.raises(CommandError, match="entry 5: its MAC differs from the one in the head"):
        _verify(head=head)


def test_the_log_goes_on_from_an_exported_head_though_older_entries_are_removed(
    log: None, tmp_path: Path, now: datetime
) -> None:
    head = tmp_path / "head.json"
    _verify(head_out=head)
    later = now + timedelta(days=400)
    _write(2, later)
    assert prune_audit_log(now=later) == 5
    chain_entries()
    said = _verify(head=head, head_out=head)
    assert "is complete: 3 entries after old entries up to 5 were removed, the last is 8" in said
    assert json.loads(head.read_text())["number"] == 8


def test_a_broken_log_ends_the_command_with_1_and_writes_no_head(
    unguarded: None, tmp_path: Path
) -> None:
    guard(connection)
    unguard(connection)
    _sql(f"UPDATE {ENTRY} SET actor = 'eve' WHERE number = 2")
    guard(connection)
    with pytest.raises(CommandError, match="entry 2: its content was changed") as told:
        _verify(head_out=tmp_path / "head.json")
    assert told.value.returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_head_ends_the_command_with_2(log: None, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is not a valid head") as told:
        _verify(head=tmp_path / "nothing.json")
    assert told.value.returncode == 2


def test_after_a_new_secret_key_older_entries_are_proved_with_the_old_one(
    log: None, tmp_path: Path, now: datetime, settings: Any
) -> None:
    old = tmp_path / "old_key"
    old.write_text(f"{settings.SECRET_KEY}\n")
    settings.SECRET_KEY = "another secret key, of fifty characters or something like it"
    _write(1, now)
    with pytest.raises(CommandError, match="entry 1: is sealed with another key"):
        _verify()
    assert "is complete: 6 entries" in _verify(old_key=[old])


def test_an_entry_that_nobody_chains_is_named(log: None, now: datetime) -> None:
    record_act(Act.SIGNED_OUT, actor="ada", now=now)
    assert audit.prove(now=now).waiting == 1
    with pytest.raises(Broken, match="was not chained in time"):
        audit.prove(now=now + timedelta(minutes=10))


@pytest.mark.guarantee("G-AUDIT-8")
def test_no_secret_stands_in_a_row(log: None) -> None:
    rows = json.dumps(list(AuditEntry.objects.values()), default=str)
    assert audit.key().secret.hex() not in rows
