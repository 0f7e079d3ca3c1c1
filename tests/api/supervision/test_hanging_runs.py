"""A run that does not end, over REST: what is said, and how its driver is ended."""

from rest_framework.test import APIClient

from queries.domain.states import StopMode
from tests.scenarios.stage import Stage


def test_a_stop_that_hangs_says_who_is_affected_and_a_restart_of_the_application_ends_it(
    as_operator: APIClient, stage: Stage
) -> None:
    stage.application("shop")
    for name in ("delays", "orders"):
        stage.query(name, "shop")
        stage.start(name)
    stage.ready("shop")
    for name in ("delays", "orders"):
        stage.commit(name)
    stop = stage.stop("orders", StopMode.NOW)
    stage.launcher.hang_stop(stage.run("orders").pk)
    stage.look()
    told = as_operator.get("/api/v1/queries/orders/").json()
    assert (told["phase"], told["phase_reason_code"]) == ("STOPPING", "STUCK")
    assert "which also restarts delays" in told["phase_detail"]
    assert told["phase_detail_code"] == "STOP_TIMED_OUT"
    assert as_operator.get(f"/api/v1/operations/{stop.uuid}/").json()["outcome"] is None
    assert as_operator.post("/api/v1/applications/shop/restart/").status_code == 202
    stage.look()
    stage.launcher.end_run(stage.run("delays").pk)
    stage.look()
    stage.launcher.leave("shop")
    stage.look()
    assert as_operator.get("/api/v1/queries/orders/").json()["phase"] == "STOPPED"
    assert as_operator.get(f"/api/v1/operations/{stop.uuid}/").json()["outcome"] == "DONE"
