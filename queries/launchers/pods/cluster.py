"""Create, find and delete the objects of drivers' pods, through the official Python client.

Every call is bounded in time. Objects are plain JSON, as Kubernetes documents them, because that is
also what is created; `ApiAway` and `Rejected` say in sentences what went wrong.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

#: Seconds to connect, and between two parts of an answer.
_CONNECT_S, _ANSWER_S = 3, 15
_UNAUTHORIZED, _NOT_FOUND, _CONFLICT = 401, 404, 409
_PASSING = frozenset({_UNAUTHORIZED, 403, 429})
#: Seconds for which a server that did not respond is left alone: each question would wait as long.
_LEFT_ALONE_S = 3.0
#: Characters of an API server's message that are shown.
_LONGEST = 300

Object = dict[str, Any]


class ApiAway(Exception):
    """The API server did not respond, or was not able to; the message is a sentence."""


class Rejected(Exception):
    """The API server rejected a request; the message is a sentence.

    `passing`: rights, quotas and load change, so the same request can be accepted later.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class Cluster:
    """One cluster, as the account of a kubeconfig sees it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._left_alone_until = 0.0  # monotonic

    @cached_property
    def namespace(self) -> str:
        """Return the namespace of the kubeconfig's context. Raises `Rejected` without a file."""
        _, active = self._contexts()
        return str(active.get("context", {}).get("namespace") or "default")

    def create(self, kind: str, namespace: str, body: Object) -> Object | None:
        """Create a "pod", "config_map" or "secret" and return it; None if its name is taken."""
        create = getattr(self._api, f"create_namespaced_{kind}")
        try:
            return self._json(create, namespace, body)
        except _Status as error:
            if error.status == _CONFLICT:
                return None
            raise error.told(f"create the {kind.replace('_', ' ')} of a driver") from None

    def read(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object; None if there is none with this name."""
        read = getattr(self._api, f"read_namespaced_{kind}")
        try:
            return self._json(read, name, namespace)
        except _Status as error:
            if error.status == _NOT_FOUND:
                return None
            raise error.told(f"read the {kind.replace('_', ' ')} {name}") from None

    def replace_data(self, kind: str, namespace: str, name: str, data: Mapping[str, str]) -> None:
        """Replace values of a "config_map" or "secret" (then as text), if it still exists."""
        patch = getattr(self._api, f"patch_namespaced_{kind}")
        field = "stringData" if kind == "secret" else "data"
        with suppress(_Status):  # it ends with its driver
            self._json(patch, name, namespace, {field: dict(data)})

    def delete(self, kind: str, namespace: str, name: str, uid: str, *, grace_s: int = 0) -> None:
        """Delete exactly the object with this UID, and what it owns; a pod after `grace_s`."""
        delete = getattr(self._api, f"delete_namespaced_{kind}")
        options: Object = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if kind == "pod":
            options["gracePeriodSeconds"] = grace_s
        try:
            self._json(delete, name, namespace, body=options)
        except _Status as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):  # gone, or another one has its name
                raise error.told(f"delete the {kind.replace('_', ' ')} {name}") from None

    def pods(self, namespace: str, selector: str) -> tuple[list[Object], str]:
        """Return the pods with these labels in a namespace, and from where to watch."""
        try:
            listed = self._json(self._api.list_namespaced_pod, namespace, label_selector=selector)
        except _Status as error:
            raise error.told("list the pods of drivers") from None
        version = str((listed.get("metadata") or {}).get("resourceVersion", ""))
        return list(listed.get("items") or ()), version

    def watch(
        self, namespace: str, selector: str, version: str, within_s: int
    ) -> Iterator[tuple[str, Object]]:
        """Yield ("MODIFIED", pod) for each change since a version, for `within_s` seconds.

        Raises `Rejected` if the API server no longer has the changes: list the pods again.
        """
        try:
            answer = self._api.list_namespaced_pod(
                namespace,
                label_selector=selector,
                resource_version=version,
                watch=True,
                timeout_seconds=within_s,
                _preload_content=False,
                _request_timeout=(_CONNECT_S, within_s + _ANSWER_S),
            )
            with closing(answer):
                for line in _lines(answer):
                    event = json.loads(line)
                    if event.get("type") == "ERROR":
                        raise Rejected("The API server no longer has the changes of drivers' pods.")
                    yield str(event.get("type", "")), event.get("object") or {}
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise _away(error) from error

    # --- the client -------------------------------------------------------------------

    @cached_property
    def _api(self) -> client.CoreV1Api:
        configuration = client.Configuration()
        configuration.retries = False  # by default each call is repeated, so it lasts longer
        try:
            return client.CoreV1Api(
                config.new_client_from_config(
                    config_file=str(self._kubeconfig), client_configuration=configuration
                )
            )
        except (ConfigException, OSError, ValueError) as error:
            raise self._unusable(error) from error

    def _contexts(self) -> tuple[list[Object], Object]:
        try:
            contexts: tuple[list[Object], Object] = config.list_kube_config_contexts(
                config_file=str(self._kubeconfig)
            )
        except (ConfigException, OSError, ValueError) as error:
            raise self._unusable(error) from error
        return contexts

    def _unusable(self, error: Exception) -> Rejected:
        return Rejected(
            f"The kubeconfig {self._kubeconfig} cannot be used: {_cut(str(error))} Set "
            "HEADGATE_POD_KUBECONFIG to a file that this worker can read."
        )

    def _json(self, call: Any, *arguments: Any, **options: Any) -> Object:
        """Return the answer to a request as JSON; raise `ApiAway` or `_Status`.

        A server that did not respond is left alone for a moment.
        """
        if time.monotonic() < self._left_alone_until:
            raise ApiAway("The Kubernetes API server did not respond a moment ago.")
        try:
            answer = call(
                *arguments,
                **options,
                _preload_content=False,
                _request_timeout=(_CONNECT_S, _ANSWER_S),
            )
            data: Object = json.loads(answer.data)
        except client.ApiException as error:
            if error.status in (0, None, 429) or error.status >= 500:
                raise _away(error) from error
            if error.status == _UNAUTHORIZED:
                self.__dict__.pop("_api", None)  # its file may have another token by now
            raise _Status(error) from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._left_alone_until = time.monotonic() + _LEFT_ALONE_S
            raise _away(error) from error
        return data


class _Status(Exception):
    """An answer other than success."""

    def __init__(self, error: client.ApiException) -> None:
        super().__init__(str(error.status))
        self.status = int(error.status)
        self._body = error.body or b""

    def told(self, what: str) -> Rejected:
        """Return the answer as an error with a sentence."""
        message = ""
        with suppress(ValueError, AttributeError, UnicodeDecodeError):
            message = str(json.loads(self._body).get("message", ""))
        return Rejected(
            f"Kubernetes rejected the request to {what} ({self.status}): "
            f"{_cut(message or 'no reason given')}",
            passing=self.status in _PASSING,
        )


def _away(error: Exception) -> ApiAway:
    status = getattr(error, "status", None)
    what = f"answered {status}" if status else f"did not respond ({type(error).__name__})"
    return ApiAway(f"The Kubernetes API server {what}.")


def _lines(answer: Any) -> Iterator[bytes]:
    """Yield the complete lines of an answer that arrives in parts."""
    rest = b""
    for part in answer.stream(amt=None, decode_content=False):
        *whole, rest = (rest + part).split(b"\n")
        yield from filter(None, whole)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."
