"""A driver in a pod has one image and no disk of its own: what needs more is rejected on save."""

from typing import Any

import pytest

from queries.domain.definitions.kubernetes import DRIVER_ACCOUNT, DRIVER_IMAGE, EXECUTOR_IMAGE
from queries.domain.definitions.spec import ApplicationSpec, DriverPlace
from queries.domain.validation.application_rules import ValidationContext, application_problems
from queries.domain.validation.pod_rules import checkpoint_problems, place_problems
from tests.domain.validation.test_query_rules import TO_FILES, sql
from tests.domain.validation.test_query_rules import found as query_problems

IMAGE, K8S = "example.org/headgate:1", "k8s://https://h:6443"


def found(image: str = IMAGE, **spec: Any) -> list[tuple[str, str, str]]:
    form = ApplicationSpec.model_validate({"driver": "pod", **spec})
    surroundings = ValidationContext(
        pod_image=image, sparks=frozenset({"4.3", "4.1"}), connectors=frozenset({"s3"})
    )
    problems = application_problems(form, surroundings=surroundings)
    return [(one.field, one.value, f"{one.message} {one.way_out}") for one in problems]


def test_a_definition_of_an_earlier_release_has_its_driver_on_the_host() -> None:
    former = ApplicationSpec.model_validate({"master": "local[4]"})
    assert (former.driver, former.runs_in_pod) == (DriverPlace.PROCESS, False)
    assert "driver" not in former.model_dump(mode="json", exclude_defaults=True)
    pod = ApplicationSpec.model_validate({"driver": "pod"})
    assert (pod.driver, pod.runs_in_pod) == (DriverPlace.POD, True)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_a_local_master_connectors_packages_and_sizes_are_fine(master: str) -> None:
    conf = {"spark.driver.memoryOverhead": "512m", "spark.kubernetes.driver.label.team": "data"}
    spec: dict[str, Any] = {
        "master": master,
        "connectors": ["s3"],
        "packages": "requests==2.32.3",
        "conf": conf,
    }
    assert found(**spec) == []


@pytest.mark.parametrize(
    ("spec", "field", "value", "says"),
    [
        (
            {"master": "spark://h:7077"},
            "master",
            "spark://h:7077",
            'can only be pods too. Use local[N] or k8s://https://host:port, or choose "process" as',
        ),
        (
            {"master": K8S},
            f"conf.{DRIVER_ACCOUNT}",
            "",
            "an account that may create executors. Have an admin set it (docs/kubernetes.md), or",
        ),
        ({"spark": "4.1"}, "spark", "4.1", 'contains Spark 4.3. Choose 4.3, or choose "process"'),
        (
            {
                "kind": "script",
                "script": {"file": "/srv/streams/job.py"},
                "python_path": ["/srv/streams"],
            },
            "kind",
            "script",
            "not possible for a driver in a pod yet. Define the queries in Headgate, or",
        ),
        ({"standby": "own"}, "standby", "own", 'a driver in a pod yet. Choose "none", or'),
        (
            {"conf": {"spark.eventLog.dir": "/logs"}},
            "conf.spark.eventLog.dir",
            "/logs",
            "which is deleted with the pod. Use a location on S3 or HDFS",
        ),
    ],
)
def test_what_a_pod_cannot_do_yet_is_rejected_with_a_way_out(
    spec: dict[str, Any], field: str, value: str, says: str
) -> None:
    rejected = [one for one in found(**spec) if one[0] == field]
    ((_, given, text),) = rejected
    assert given == value
    assert says in text
    assert not [one for one in found(**{**spec, "driver": "process"}) if one[0] == field]


@pytest.mark.parametrize("key", ["container.image", "driver.container.image"])
def test_an_image_is_needed_from_the_definition_or_the_installation(key: str) -> None:
    ((field, value, text),) = found(image="")
    assert (field, value) == ("conf.spark.kubernetes.driver.container.image", "")
    assert "without an image. Have an admin set it or HEADGATE_POD_IMAGE" in text
    assert found(image="", conf={f"spark.kubernetes.{key}": IMAGE}) == []
    assert found(image="", conf={"spark.kubernetes.executor.container.image": IMAGE}) != []
    assert found(image="", driver="process") == []


def test_executors_are_pods_with_the_image_of_their_driver_unless_they_have_their_own() -> None:
    conf = {DRIVER_ACCOUNT: "driver"}
    assert found(master=K8S, conf=conf) == []
    fields = [field for field, *_ in found(image="", master=K8S, conf=conf)]
    assert fields == [f"conf.spark.kubernetes.{of}container.image" for of in ("", "driver.")]
    assert found(image="", master=K8S, conf={**conf, DRIVER_IMAGE: IMAGE}) == []
    ((field, *_),) = found(image="", master=K8S, conf={**conf, EXECUTOR_IMAGE: IMAGE})
    assert field == "conf.spark.kubernetes.driver.container.image"


@pytest.mark.guarantee("G-POD-5")
@pytest.mark.parametrize(
    ("location", "fine"),
    [
        ("file:///var/checkpoints/delays", False),
        ("s3a://bucket/checkpoints/delays", True),
        ("hdfs://name:8020/checkpoints/delays", True),
    ],
)
def test_a_pods_checkpoint_is_on_shared_storage(location: str, fine: bool) -> None:
    problems = checkpoint_problems(location, ApplicationSpec(driver="pod"))
    assert [one.field for one in problems] == ([] if fine else ["checkpoint"])
    for one in problems:
        assert "deleted with the pod" in one.message
        assert "for example s3a://bucket/checkpoints/NAME" in one.way_out
    assert checkpoint_problems(location, ApplicationSpec()) == []


@pytest.mark.parametrize(
    ("field", "text", "fine"),
    [
        ("sink.options.path", "/data/out", False),
        ("sink.options.path", "file:///data/out", False),
        ("sources.0.options.path", "/data/in/*.json", False),
        ("sql", "/data/table", False),
        ("conf.spark.sql.warehouse.dir", "/data/warehouse", False),
        ("sink.options.path", "s3://bucket/out", True),
        ("sources.0.options.path", "hdfs://name/in/{a,b}", True),
        ("sources.0.options.path", "relative", True),  # rejected as no location at all
        ("sources.0.options.kafka.ssl.truststore.location", "/etc/trust.jks", True),
        ("conf.spark.kafka.clusters.a.ssl.truststore.location", "/etc/trust.jks", True),
        ("schedule.files", "/data/in", True),
    ],
)
def test_data_of_a_pod_is_on_shared_storage(field: str, text: str, fine: bool) -> None:
    problems = place_problems([(field, text)], ApplicationSpec(driver="pod"))
    assert [(one.field, one.value) for one in problems] == ([] if fine else [(field, text)])
    assert place_problems([(field, text)], ApplicationSpec()) == []


def test_a_query_of_a_pod_cannot_write_to_its_disk() -> None:
    query = sql(sink=TO_FILES)
    (problem,) = query_problems(query, application={"driver": "pod"})
    assert (problem.field, problem.value) == ("sink.options.path", "/data/out")
    assert query_problems(query, application={"driver": "process"}) == []
