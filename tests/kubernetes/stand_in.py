"""A stand-in for a cluster's API server, as far as the launcher of drivers as pods uses one."""

import json
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import yaml

from installation.machine.kubernetes_keys import DRIVERS
from queries.launchers.pods import objects
from queries.launchers.pods.cluster import Object


class ApiServer(ABC):
    """A cluster, as far as a launcher can tell, and what can happen to a pod there."""

    kubeconfig: Path

    @abstractmethod
    def run(self, name: str) -> None:
        """Wait until a pod's first container runs on a node."""

    @abstractmethod
    def end(self, name: str) -> None:
        """Delete a pod whose node responds, and reports the end of its containers."""

    @abstractmethod
    @contextmanager
    def lose(self, name: str) -> Iterator[None]:
        """Delete a pod whose node does not respond; it responds again after the block."""


@dataclass
class StandIn(ApiServer):
    """The part of an API server that a launcher uses.

    Its pods have no containers, unless `created` and `delete` are those of a kubelet.
    """

    kubeconfig: Path
    stored: dict[tuple[str, str], Object] = field(default_factory=dict)
    quota: str = ""  # why no pod can be created; "" if one can

    def run(self, name: str) -> None:
        self.stored["pods", name]["spec"]["nodeName"] = "node-1"

    def end(self, name: str) -> None:
        pod = self.stored["pods", name]
        pod["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
        ended = {"terminated": {"exitCode": 137}}
        waiting = {"waiting": {"reason": "PodInitializing"}}
        pod["status"] = {
            "phase": "Failed",
            "initContainerStatuses": [{"name": "fetch", "state": ended}],
            "containerStatuses": [{"name": objects.CONTAINER, "state": waiting}],
        }

    @contextmanager
    def lose(self, name: str) -> Iterator[None]:
        del self.stored["pods", name]
        yield

    def answer(self, method: str, path: str, body: Object) -> tuple[int, Object]:
        """Return the answer to a request, as the API's reference documents it."""
        namespace, *parts = path.partition("?")[0].split("/")[4:]  # then kind, or kind and name
        last = parts[-1]
        key = (parts[0], str(body["metadata"]["name"]) if method == "POST" else last)
        found = self.stored.get(key)
        if method == "POST":
            if self.quota and parts[0] == "pods":
                return 403, {"message": self.quota}
            if found is not None:
                return 409, {"message": f"{key[1]} already exists"}
            body["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": namespace}
            self.stored[key] = {"status": {"phase": "Pending"}, **body}
            self.created(parts[0], self.stored[key])
            return 201, self.stored[key]
        if len(parts) == 1:
            found_items = [] if "watch=" in path else self.listed(parts[0])
            items = [one for one in found_items if one["metadata"]["namespace"] == namespace]
            return 200, {"metadata": {"resourceVersion": "1"}, "items": items}
        if found is None:
            return 404, {"message": f"{last} not found"}
        if method == "DELETE":
            uid = found["metadata"]["uid"]
            if body.get("preconditions", {}).get("uid", uid) != uid:
                return 409, {"message": "the UID in the precondition differs"}
            self.delete(parts[0], found, grace_s=int(body.get("gracePeriodSeconds") or 0))
        if method == "PATCH":
            for name in body.keys() & {"data", "stringData"}:
                found[name] = {**found.get(name, {}), **body[name]}
        return 200, found

    def listed(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        return [item for (of, _), item in [*self.stored.items()] if of == kind]

    def created(self, kind: str, item: Object) -> None:
        """An object was created: no node takes a pod by itself."""

    def delete(self, kind: str, item: Object, *, grace_s: int) -> None:
        """Delete an object and what it owns."""
        uid = item["metadata"]["uid"]
        for key, other in [*self.stored.items()]:
            metadata = other["metadata"]
            owners = [one["uid"] for one in metadata.get("ownerReferences", ())]
            if uid in (metadata["uid"], *owners):
                del self.stored[key]


Served = TypeVar("Served", bound=StandIn)


@contextmanager
def stand_in(folder: Path) -> Iterator[StandIn]:
    """Serve a stand-in whose pods have no containers."""
    with served(StandIn(folder / "kubeconfig")) as api:
        yield api


@contextmanager
def served(api: Served) -> Iterator[Served]:
    """Serve a stand-in on loopback, and write its kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = api.answer(self.command, self.path, json.loads(text or b"{}"))
            data = b"" if "watch=" in self.path else json.dumps(answer).encode()
            if not data:
                time.sleep(0.1)  # a watch without any change
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_request

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        write_kubeconfig(api.kubeconfig, server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


def write_kubeconfig(file: Path, port: int, scheme: str = "http") -> None:
    """Write a kubeconfig for an API server on loopback."""
    cluster = {"server": f"{scheme}://127.0.0.1:{port}"}
    named = {
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": "x"}}],
        "contexts": [
            {"name": "it", "context": {"cluster": "it", "user": "it", "namespace": DRIVERS}}
        ],
    }
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "current-context": "it", **named}))
