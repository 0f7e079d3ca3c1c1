"""py4j's callback server takes calls from the JVM that it belongs to, and from nobody else."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from queries.runtime.spark_session import guard_callbacks
from tests.security.drivers import strange_asker

pytestmark = pytest.mark.spark


class Noted:
    """A Runnable that notes that the JVM has called it."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self) -> None:
        self.calls += 1

    class Java:
        """What py4j offers to the JVM."""

        implements = ("java.lang.Runnable",)


@pytest.fixture
def gateway(java_home: str) -> Iterator[JavaGateway]:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, token, process = launch_gateway(
        jarpath=str(jar),
        java_path=f"{java_home}/bin/java",
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    made = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield made
    with contextlib.suppress(Exception):
        made.shutdown()
    process.kill()
    process.wait()
    process.stdin.close()


@pytest.mark.guarantee("G-PORT-2")
def test_the_jvm_calls_python_with_the_token_and_nobody_does_without(gateway: JavaGateway) -> None:
    guard_callbacks(gateway)
    noted = Noted()
    threads = gateway.jvm.java.util.concurrent.Executors.newSingleThreadExecutor()
    threads.submit(noted).get()  # a thread of the JVM's own: a connection of its own
    assert noted.calls == 1
    port = gateway.get_callback_server().get_listening_port()
    answers = strange_asker.ask([port])[port]
    assert set(answers.values()) <= {"", "!xn\n"}
    threads.submit(noted).get()
    assert noted.calls == 2
    threads.shutdown()


@pytest.mark.guarantee("G-PORT-2")
def test_a_jvm_that_keeps_no_token_starts_no_driver(
    gateway: JavaGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful:
        def getDeclaredField(self, name: str) -> Any:
            assert name == "authToken"
            return SimpleNamespace(
                setAccessible=lambda _: None, set=lambda *_: None, get=lambda _: None
            )

    named = SimpleNamespace(forName=lambda _: Forgetful())
    java = SimpleNamespace(lang=SimpleNamespace(Class=named))
    monkeypatch.setattr(gateway, "jvm", SimpleNamespace(java=java))
    with pytest.raises(RuntimeError, match="does not store a token"):
        guard_callbacks(gateway)
