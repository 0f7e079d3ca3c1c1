"""One member that fails keeps its neighbours from nothing, in every loop that serves several.

The loops are found in the code by their guard, and each names the test that puts a rotten member
into it. In the stories here the second of three members fails.
"""

import ast
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from model_bakery import baker

from headgate_ground.packages import OURS
from listeners.loops.backlogs import current
from listeners.missing import recovered
from listeners.models import Gap
from queries.domain.alerts.incidents import IncidentAction
from queries.domain.states import DriverKind, DriverState
from queries.domain.system import SystemHealth
from queries.models.checkpoints import TABLE, SourceLag
from queries.models.drivers import Driver, Run
from queries.services import tables as table_lag
from queries.services.alerts import figures, incidents
from queries.services.checkpoints import batch_repair, storage_jvms
from queries.services.deploys import advancing
from queries.services.kafka import lag
from queries.services.supervision import adoption
from queries.views.console import fragments
from tests.scenarios.stage import Stage

TESTS = Path(__file__).resolve().parents[1]
HERE = "services/test_every_loop.py::test_the_others_are_served"
TROUBLE = "services/supervision/test_one_trouble_stops_no_other.py::test_"
DRIVER = "runtime/test_one_trouble_ends_no_driver.py::test_"
ROWS = "web/test_one_rotten_row.py::test_"
LIMITS = "services/alerts/test_thresholds.py::test_an_unreadable_threshold_does_not_hide_the_others"
LISTS = f"{ROWS}every_list_shows_as_many_rows_with_one_that_cannot_be_read"
LAG = "services/kafka/test_lag.py::test_"
LIVE = "web/console/test_live.py::test_"
CODE = "services/code/test_pruning.py::test_what_cannot_be_deleted_keeps_no_other"
RUN = f"{DRIVER}the_trouble_of_one_run_keeps_the_others_from_nothing"

#: A function whose loop, or whose single part, is guarded -> the test that lets a member fail.
HELD_BY = {
    "listeners.ingest._keep_house": "listeners/test_ingest.py::"
    "test_a_stream_that_cannot_be_kept_short_keeps_the_others_from_nothing",
    "listeners.loops.timers._run": "listeners/loops/test_timers.py::"
    "test_an_error_is_shown_and_the_tick_runs_again",
    "listeners.missing.gaps._in_slices": "listeners/test_gaps.py::"
    "test_one_drivers_trouble_stops_the_judging_of_no_other",
    "listeners.missing.gaps._repair_from_spools": "listeners/test_gaps.py::"
    "test_a_dead_driver_whose_spool_cannot_be_read_is_set_aside_after_an_hour",
    "listeners.missing.recovered.lost_batches": HERE,
    "listeners.retention.expire": "listeners/test_rollups_and_retention.py::"
    "test_a_table_that_cannot_be_cleared_keeps_the_others_from_nothing",
    "queries.runtime.assignment._read": f"{DRIVER}a_rotten_assignment_changes_nothing_until_it"
    "_can_be_read",
    "queries.runtime.assignment.apply": f"{DRIVER}a_run_that_cannot_even_be_begun_has_failed_and"
    "_its_neighbours_run",
    "queries.runtime.checkpoints.locks.lost": RUN,
    "queries.runtime.checkpoints.logs._report": "runtime/test_log_reports.py::"
    "test_a_store_that_fails_leaves_the_last_report_and_the_next_read_succeeds",
    "queries.runtime.main._check_locks": RUN,
    "queries.runtime.main._current": f"{DRIVER}a_rotten_current_json_fences_nobody",
    "queries.runtime.main._leave": RUN,
    "queries.runtime.main._work_once": RUN,
    "queries.runtime.scripts.main._look": RUN,
    "queries.services.supervision.standbys.keep_standbys": "services/supervision/test_standbys.py::"
    "test_a_standby_that_cannot_be_looked_at_keeps_the_others_from_nothing",
    "queries.runtime.status_report.write": f"{DRIVER}a_status_file_that_cannot_be_written_ends"
    "_nothing_and_is_written_later",
    "queries.selectors.alerts.rules.last_week": LISTS,
    "queries.selectors.alerts.rules.rules_in_force": LISTS,
    "queries.selectors.alerts.rules.stopped_within": LISTS,
    "queries.selectors.definitions.sparks.spark_users": LISTS,
    "queries.selectors.kafka.sources.readings": f"{LAG}a_query_whose_definition_cannot_be_read"
    "_leaves_out_itself_alone",
    "queries.selectors.kafka.sources.offsets_in_progress": f"{LAG}a_query_whose_definition_cannot"
    "_be_read_leaves_out_itself_alone",
    "queries.selectors.metrics._figures": "web/supervision/test_one_rotten_query.py::"
    "test_metrics_leave_out_the_query_that_cannot_be_counted",
    "queries.selectors.secrets._namings": LISTS,
    "queries.selectors.secrets.all_bound": LISTS,
    "queries.selectors.supervision.applications.drift": LISTS,
    "queries.selectors.tables.table_readings": "services/tables/test_lag.py::"
    "test_a_definition_that_cannot_be_read_keeps_its_row_and_leaves_the_others_theirs",
    "queries.selectors.supervision.health.healths": f"{TROUBLE}a_query_whose_health_cannot_be"
    "_judged_leaves_the_others_theirs",
    "queries.selectors.lineage.of": "services/alerts/test_deliveries.py::"
    "test_a_lineage_that_cannot_be_read_keeps_no_message_back",
    "queries.services.alerts.deliveries.announce_incidents": "services/alerts/test_deliveries.py::"
    "test_one_rotten_incident_stops_no_other",
    "queries.services.alerts.deliveries.send_alerts": "services/alerts/test_deliveries.py::"
    "test_a_message_that_cannot_be_read_keeps_no_other_waiting_and_is_named",
    "queries.selectors.alerts.thresholds._all_held": LIMITS,
    "queries.selectors.alerts.thresholds._held_by": LIMITS,
    "queries.selectors.alerts.thresholds._rules": LIMITS,
    "queries.selectors.alerts.thresholds.crossed_thresholds": LIMITS,
    "queries.services.alerts.figures.sample_figures": "services/alerts/test_thresholds.py::"
    "test_a_query_whose_figures_cannot_be_read_keeps_no_other_from_being_sampled",
    "queries.services.alerts.incidents._outside_maintenance": "services/alerts/test_incidents.py::"
    "test_a_window_that_cannot_be_read_hides_nothing_and_stops_nothing",
    "queries.services.alerts.incidents.watch_incidents": HERE,
    "queries.services.alerts.figures.look_ahead": HERE,
    "queries.services.checkpoints.batch_repair.count_unreported": HERE,
    "queries.services.checkpoints.batch_repair.repair_from_checkpoints": f"{TROUBLE}a_checkpoint"
    "_that_cannot_be_read_keeps_the_others_from_repair",
    "queries.services.checkpoints.batch_repair.look_for_foreign_batches": f"{TROUBLE}a"
    "_checkpoint_that_cannot_be_looked_into_keeps_the_others_from_nothing",
    "queries.services.checkpoints.storage_jvms.note_ended": HERE,
    "queries.services.checkpoints.snapshot.prune": f"{TROUBLE}a_snapshot_that_cannot_be_removed"
    "_keeps_the_others_from_nothing",
    "queries.services.code.preparing._forget_uploads": CODE,
    "queries.services.code.preparing._remove": CODE,
    "queries.services.code.preparing._remove_drafts": CODE,
    "queries.services.definitions.surroundings.places_outside": LISTS,
    "queries.services.definitions.sql_recheck.read_unread_sql": "services/definitions/"
    "test_sql_recheck.py::test_a_revision_that_cannot_be_read_keeps_no_other_from_being_read",
    "queries.services.definitions.sql_recheck.recheck_sql": "services/definitions/"
    "test_sql_recheck.py::test_a_definition_that_cannot_be_read_keeps_no_other_from_being_asked"
    "_about",
    "queries.services.deploys.advancing.advance_all": HERE,
    "queries.services.downloads.prune_sparks": "services/downloads/test_removal.py::"
    "test_a_version_that_cannot_be_removed_keeps_no_other_and_leftovers_go",
    "queries.services.kafka.lag._forget_others": HERE,
    "queries.services.kafka.lag.look_at_sources": f"{LAG}a_query_whose_lag_cannot_be_written"
    "_leaves_out_itself_alone",
    "queries.services.kafka.loss_ledger._judged": "services/kafka/test_loss_ledger.py::"
    "test_the_batches_of_a_run_whose_definition_cannot_be_read_stop_no_other",
    "queries.services.probes.inspections.forget_old_results": f"{TROUBLE}an_answer_that_cannot_be"
    "_removed_keeps_the_others_from_nothing",
    "queries.services.procedures.engine.note_silent_hosts": f"{TROUBLE}an_operation_of_a_silent"
    "_host_that_fails_to_be_told_keeps_the_others_from_nothing",
    "queries.services.arrivals.look_at_folders": "services/test_arrivals.py::"
    "test_a_folder_that_cannot_be_looked_at_keeps_no_other_from_being_listed",
    "queries.services.schedules.ticks.run_schedules": "services/schedules/test_ticks.py::"
    "test_one_rotten_schedule_does_not_stop_the_others",
    "queries.services.supervision.adoption.end_strays": HERE,
    "queries.services.tables._forget_others": HERE,
    "queries.services.tables.look_at_tables": HERE,
    "queries.services.supervision.reconcile._log_tail": f"{TROUBLE}an_application_that_cannot_be"
    "_reconciled_delays_no_other_and_is_logged_once",
    "queries.services.supervision.reconcile.prune_folders": f"{TROUBLE}a_folder_that_cannot_be"
    "_pruned_keeps_the_others_from_nothing",
    "queries.services.supervision.decision_rows._replayed": f"{TROUBLE}a_rotten_batch_keeps_no"
    "_application_from_being_reconciled",
    "queries.services.supervision.records.note_verdicts": f"{TROUBLE}a_verdict_that_cannot_be"
    "_written_keeps_the_others_from_nothing",
    "queries.ticks.sweep": f"{TROUBLE}an_application_that_cannot_be_reconciled_delays_no_other"
    "_and_is_logged_once",
    "queries.views.console.fragments.parts": HERE,
    "queries.views.console.hub._draw": f"{LIVE}a_topic_that_cannot_be_drawn_leaves_the_others"
    "_alive",
    "queries.views.console.hub._end_of_rights": f"{LIVE}a_topic_that_cannot_be_drawn_keeps_the"
    "_others_from_nothing",
    "queries.views.console.hub._look_at_age": f"{LIVE}a_topic_that_cannot_be_drawn_keeps_the"
    "_others_from_nothing",
    "queries.views.console.hub._redraw": f"{LIVE}a_topic_that_cannot_be_drawn_keeps_the_others"
    "_from_nothing",
    "queries.views.system._samples": "web/supervision/test_one_rotten_query.py::"
    "test_metrics_leave_out_the_query_that_cannot_be_counted",
}


# --- the loops that there are -----------------------------------------------------------------
def _is_guard(node: ast.AST) -> bool:
    """Tell whether a node begins what is guarded: `….isolate_errors(…)` or `isolate(…)`."""
    if not isinstance(node, ast.With | ast.AsyncWith):
        return False
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name == "isolate_errors" or (
                isinstance(call.func, ast.Name) and call.func.id in ("isolate", "isolate_errors")
            ):
                return True
    return False


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions within it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
            yield from _own(child)


def guarded() -> set[str]:
    """Return every function of the product that guards a member."""
    found = set()
    for root in OURS:
        for path in (TESTS.parent / root).rglob("*.py"):
            module = path.relative_to(TESTS.parent).with_suffix("").as_posix().replace("/", ".")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                    _is_guard(one) for one in _own(node)
                ):
                    found.add(f"{module}.{node.name}")
    return found


def test_each_guarded_loop_names_a_test_that_lets_a_member_fail() -> None:
    assert guarded() == HELD_BY.keys()
    for test in set(HELD_BY.values()):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), test


# --- one of three fails -------------------------------------------------------------------------
class Members:
    """What takes the place of a member's work: the second member's fails."""

    def __init__(self) -> None:
        self.came: list[Any] = []

    def __call__(self, *arguments: Any, **_: Any) -> int:
        self.came.append(arguments)
        if len(self.came) == 2:
            raise KeyError("rotten")
        return 1


Story = Callable[[Stage, pytest.MonkeyPatch, Members], object]
STORIES: dict[str, Story] = {}


def story(told: Story) -> Story:
    STORIES[told.__name__] = told
    return told


@story
def storage_jvms_that_ended(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    for name in ("a", "b", "c"):
        stage.query(name)
        application = stage.row(name).application
        baker.make(
            Driver,
            application=application,
            application_revision=application.revisions.get(),
            kind=DriverKind.STORAGE,
            host=settings.HEADGATE_HOST,
            state=DriverState.LIVE,
            created_at=stage.now - 2 * storage_jvms.LAUNCHED_WITHIN,
            operation=None,
        )
    patch.setattr(storage_jvms, "_end", lambda row, now: members(row))
    storage_jvms.note_ended(launcher=stage.launcher, now=stage.now)


@story
def deploys(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    patch.setattr(advancing, "due_deploys", lambda: [1, 2, 3])
    patch.setattr(advancing, "advance", members)
    advancing.advance_all(now=stage.now)


@story
def what_lies_ahead(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    for name in ("a", "b", "c"):
        stage.query(name)
        stage.up(name)
    patch.setattr(figures, "_look", members)
    assert figures.look_ahead(now=stage.now) == 2


@story
def changes_of_incidents(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    found = [
        SimpleNamespace(act=IncidentAction.OPEN, known=None, trouble=SimpleNamespace(title=title))
        for title in "abc"
    ]
    patch.setattr(incidents, "system_health", lambda now: SystemHealth(now, ()))
    patch.setattr(incidents, "changes", lambda *_, **__: found)
    patch.setattr(incidents, "_carry_out", members)
    assert incidents.watch_incidents(now=stage.now) == 2


@story
def commits_of_runs(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    stage.launcher.obliging = True
    for name in ("a", "b", "c"):
        stage.query(name)
        stage.up(name)
        stage.stop(name)
    Run.objects.update(ended_at=stage.now, commits_compared_at=None)
    patch.setattr(batch_repair, "connection", lambda: None)
    patch.setattr("listeners.streams.stored_up_to", lambda *_: {})
    patch.setattr(batch_repair, "_compare", members)
    assert batch_repair.count_unreported(now=stage.now + timedelta(hours=1)) == 2


@story
def lost_batches(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    gaps = baker.prepare(Gap, _quantity=3, run=5, driver=1, first=1, last=1)
    patch.setattr(recovered, "_gaps", lambda _: gaps)
    patch.setattr(recovered, "_received", lambda gap: [] * members(gap))
    assert len(recovered.lost_batches(now=stage.now)) == 2


@story
def former_lag(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    for name in ("a", "b", "c"):
        baker.make(SourceLag, query=stage.query(name))
    patch.setattr(lag, "changed", members)
    lag._forget_others(set())


@story
def former_tables(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    for name in ("a", "b", "c"):
        baker.make(SourceLag, query=stage.query(name), partition=TABLE)
    patch.setattr(table_lag, "changed", members)
    table_lag._forget_others(set())


@story
def tables(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    source = {"name": "t", "format": "delta", "options": {"path": "/data/t"}}
    for name in ("a", "b", "c"):
        stage.query(name, sources=[source])
    patch.setattr(table_lag, "_look", members)
    table_lag.look_at_tables(launcher=stage.launcher, now=stage.now)


@story
def strays(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    for name in ("a", "b", "c"):
        stage.query(name)
        stage.up(name)
    Driver.objects.update(state="ENDED")
    patch.setattr(stage.launcher, "kill", members)
    assert len(adoption.end_strays(launcher=stage.launcher)) == 2


@story
def parts_of_a_page(stage: Stage, patch: pytest.MonkeyPatch, members: Members) -> None:
    patch.setattr(fragments, "render_to_string", lambda *_: str(members(*_)))
    drawn = fragments.parts(("head", "body", "foot"), "query", "queries", "7", {})
    assert [name for name, _ in drawn] == ["query-head-7", "query-foot-7"]


@pytest.mark.django_db
@pytest.mark.parametrize("told", STORIES.values(), ids=list(STORIES))
def test_the_others_are_served(told: Story, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    members = Members()
    told(stage, monkeypatch, members)
    assert len(members.came) == 3
    assert [one.cause for one in current(datetime.now(UTC))] in ([], ["KeyError: 'rotten'"])
