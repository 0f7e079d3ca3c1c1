"""On Kubernetes, authors choose how large executors are, and admins where they run."""

import re

import pytest

from queries.domain.definitions.configuration import application_conf_problems
from queries.domain.definitions.kubernetes import (
    DRIVER_IMAGE,
    IMAGE,
    OF_AUTHORS,
    kubernetes_problems,
    placement_fields,
)
from queries.domain.definitions.spec import ApplicationSpec

MASTER = "k8s://https://10.0.0.1:6443"
ADMINS = {
    "spark.kubernetes.namespace": "flights",
    IMAGE: "example.org/spark:1",
    "spark.kubernetes.container.image.pullPolicy": "Always",
    "spark.kubernetes.context": "prod",
    "spark.kubernetes.authenticate.oauthToken": "file:spark-token",
    "spark.kubernetes.authenticate.executor.serviceAccountName": "spark",
    "spark.kubernetes.authenticate.driver.serviceAccountName": "driver",
    "spark.kubernetes.executor.podTemplateFile": "file:///etc/pods/executor.yaml",
    "spark.kubernetes.executor.volumes.hostPath.x.mount.path": "/x",
    "spark.kubernetes.node.selector.pool": "spark",
    "spark.kubernetes.driver.container.image": "example.org/spark:2",
    "spark.kubernetes.driver.node.selector.pool": "drivers",
    "spark.kubernetes.driver.annotation.example.org/role": "x",
    "spark.kubernetes.driver.scheduler.name": "other",
}
AUTHORS = {
    "spark.kubernetes.executor.request.cores": "500m",
    "spark.kubernetes.executor.limit.cores": "1",
    "spark.kubernetes.executor.label.team": "data",
    "spark.executor.memoryOverhead": "512m",
    "spark.kubernetes.driver.request.cores": "500m",
    "spark.kubernetes.driver.limit.cores": "2",
    "spark.kubernetes.driver.label.team": "data",
    "spark.driver.memoryOverhead": "512m",
}


@pytest.mark.parametrize("name", ADMINS)
def test_what_decides_where_pods_run_is_an_admins(name: str) -> None:
    before = ApplicationSpec(master=MASTER, conf={IMAGE: "example.org/spark:0"})
    after = before.model_copy(update={"conf": {**before.conf, name: ADMINS[name]}})
    assert placement_fields(before, after) == [f"conf.{name}"]
    assert placement_fields(after, before) == [f"conf.{name}"]
    assert placement_fields(after, after) == []
    pod = {"driver": "pod", "master": "local[2]"}
    before, after = (one.model_copy(update=pod) for one in (before, after))
    assert placement_fields(before, after) == [f"conf.{name}"]


def test_the_master_is_an_admins_because_the_account_goes_there() -> None:
    local = ApplicationSpec()
    pods = ApplicationSpec(master=MASTER)
    assert placement_fields(None, pods) == placement_fields(local, pods) == ["master"]
    elsewhere = ApplicationSpec(master="k8s://https://10.0.0.2:6443")
    assert placement_fields(pods, elsewhere) == ["master"]
    assert placement_fields(None, ApplicationSpec(master="yarn")) == []


def test_an_author_may_move_the_driver_into_a_pod_that_an_admin_has_chosen() -> None:
    assert placement_fields(ApplicationSpec(), ApplicationSpec(driver="pod")) == []
    assert placement_fields(ApplicationSpec(driver="pod"), ApplicationSpec()) == []
    named = ApplicationSpec(driver="pod", conf={DRIVER_IMAGE: "example.org/mine:1"})
    assert placement_fields(ApplicationSpec(), named) == [f"conf.{DRIVER_IMAGE}"]


def test_an_author_may_not_take_a_driver_with_executors_to_the_account_of_a_host() -> None:
    pod = ApplicationSpec(driver="pod", master=MASTER)
    host = ApplicationSpec(master=MASTER)
    assert placement_fields(pod, host) == placement_fields(host, pod) == ["driver"]
    assert placement_fields(pod, ApplicationSpec(driver="pod")) == ["driver", "master"]


def test_requests_limits_and_labels_are_authors() -> None:
    before = ApplicationSpec(master=MASTER, conf=dict(ADMINS))
    after = ApplicationSpec(master=MASTER, conf={**ADMINS, **AUTHORS})
    assert placement_fields(before, after) == []
    assert application_conf_problems({**ADMINS, **AUTHORS}) == []


@pytest.mark.parametrize(
    "name",
    [
        "spark.kubernetes.executor.label.headgate/application",
        "spark.kubernetes.executor.label.spark-app-selector",
        "spark.kubernetes.executor.podNamePrefix",
        "spark.kubernetes.driver.label.headgate/epoch",
        "spark.kubernetes.driver.label.spark-role",
        "spark.kubernetes.driver.podTemplateFile",
        "spark.kubernetes.driver.volumes.hostPath.x.mount.path",
        "spark.kubernetes.driver.pod.name",
        "spark.kubernetes.trust.certificates",
    ],
)
def test_what_headgate_or_spark_sets_is_nobodys(name: str) -> None:
    assert [one.field for one in application_conf_problems({name: "x"})] == [f"conf.{name}"]
    assert not re.fullmatch(OF_AUTHORS, name)


def test_a_token_in_plain_text_is_rejected() -> None:
    token = {"spark.kubernetes.authenticate.oauthToken": "eyJhbGciOiJSUzI1NiIs"}
    (problem,) = application_conf_problems(token)
    assert "secret in plain text" in str(problem)


def test_executors_need_an_image() -> None:
    (problem,) = kubernetes_problems(MASTER, {})
    assert (problem.field, "without an image" in str(problem)) == (f"conf.{IMAGE}", True)
    assert kubernetes_problems(MASTER, ADMINS) == []
    assert kubernetes_problems("local[2]", {}) == []
