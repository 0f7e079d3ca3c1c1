"""Watch drivers' pods in each namespace that has one, so that their ends are heard at once."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queries.domain.definitions.kubernetes import OUR_LABELS
from queries.launchers.pods.cluster import Cluster, Object
from queries.launchers.pods.objects import KIND

logger = logging.getLogger(__name__)

_SELECTOR = f"{OUR_LABELS}kind={KIND}"
#: Seconds for which one request lasts, and until the pods are listed again: after it, and after an
#: error. A namespace's first pod is heard of as late as that.
_REQUEST_S, _BETWEEN_S, _AGAIN_S = 60, 1.0, 5.0


class Watch:
    """Tells of every pod of a driver, and of each change of it; what a gap hid is told later."""

    def __init__(
        self,
        cluster: Cluster,
        namespaces: Callable[[], set[str]],
        hear: Callable[[Object], None],
    ) -> None:
        self._cluster, self._namespaces, self._hear = cluster, namespaces, hear
        self._over = threading.Event()
        self._wanted: set[str] = set()
        self._threads: dict[str, threading.Thread] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch in the background."""
        threading.Thread(target=self._run, name="pods of drivers", daemon=True).start()
        try:
            yield
        finally:
            self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._watch_all(self._namespaces())
            except Exception as error:  # thread boundary: a file that cannot be read is read again
                logger.warning("namespaces of drivers' pods are not known: %s", error)
            self._over.wait(_AGAIN_S)

    def _watch_all(self, namespaces: set[str]) -> None:
        """Begin to watch those that are not watched; the others' watches end by themselves."""
        self._wanted = namespaces
        self._threads = {name: one for name, one in self._threads.items() if one.is_alive()}
        for namespace in namespaces - self._threads.keys():
            name = f"pods of drivers in {namespace}"
            thread = threading.Thread(target=self._watch, args=(namespace,), name=name, daemon=True)
            self._threads[namespace] = thread
            thread.start()

    def _watch(self, namespace: str) -> None:
        is_told = False
        while not self._over.is_set() and namespace in self._wanted:
            try:
                self._watch_once(namespace)
                is_told = False
                self._over.wait(_BETWEEN_S)
            except Exception as error:  # thread boundary: the watch goes on
                if not is_told:
                    logger.warning("pods of drivers in %s are not watched: %s", namespace, error)
                is_told = True
                self._over.wait(_AGAIN_S)

    def _watch_once(self, namespace: str) -> None:
        pods, version = self._cluster.pods(namespace, _SELECTOR)
        for pod in pods:
            self._hear(pod)
        for _, pod in self._cluster.watch(namespace, _SELECTOR, version, _REQUEST_S):
            if self._over.is_set():
                return
            self._hear(pod)
