"""Launch drivers as pods of a Kubernetes cluster, next to those that are processes on this host.

A pod's folder exists twice (`layout`). This launcher reads this host's copy in the same way as the
folder of a process, and gets from the API server only what Kubernetes alone knows: whether the pod
has a node, and how its containers ended. What is gone is not dead: an exit is recorded only once
the kubelet has reported that every container has ended (docs/decisions/0051).
"""

import json
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings

from controlplane import fail_points, hosts
from headgate_ground.files import exclusive, read_file, replace_file
from headgate_ground.tolerant import whole
from queries.domain.definitions.kubernetes import OUR_LABELS
from queries.domain.hosts import IsolationChoice
from queries.domain.pods import DriverPod, driver_pod
from queries.domain.protocol import (
    ASSIGNMENT,
    EXIT,
    KILL_REASON,
    LEAVE_S,
    POOLS,
    SPEC,
    Assignment,
    Current,
    DriverSpec,
    ExitReport,
    Killer,
)
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness, Sighting
from queries.driver_folder import DriverFolder, read_current
from queries.launchers.base import LaunchRefused
from queries.launchers.pods import archives, fetch, objects
from queries.launchers.pods.cluster import ApiAway, Cluster, Object, Rejected
from queries.launchers.pods.layout import (
    ASKED,
    FILE_PREFIX,
    MADE,
    POLL_S,
    REFUSED,
    TERMINATE,
    Archive,
    Made,
    Plan,
)
from queries.launchers.pods.notes import Notes
from queries.launchers.pods.watch import Watch
from queries.launchers.process import exits, sighting
from queries.launchers.process.isolation import self_test
from queries.launchers.process.isolation.preparing import named_secrets
from queries.launchers.process.launcher import LocalProcessLauncher

logger = logging.getLogger(__name__)

#: The longest name of a host in owner files: "pod:" and a UID.
HOST = "pod:{}"
#: From SIGTERM to SIGKILL when supervision kills a driver. 0 would remove the pod from the API
#: server before it has ended.
_KILL_GRACE_S = 1
#: Seconds after its last question for news when a pod counts as not reached by them.
_UNHEARD_S = POLL_S + 2.0
FENCED = "FENCED"
_DELETED = "The driver's pod was deleted by a user or by Kubernetes."
_NEVER_RAN = "The driver's pod was deleted before it was seen on a node."
#: How a process ended, as shims write it.
_END = re.compile(r"[0-9]{1,3}|SIG[A-Z0-9]{1,9}|UNKNOWN")
_NOT_SEEN = (
    "The driver's pod no longer exists, and its node has not reported its end. It may still run "
    "there until it sees the next owner of its checkpoints."
)


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Where and how this installation's pods are made."""

    kubeconfig: str  # "": there is no cluster
    url: str  # of the web process, as pods see it
    redis_url: str  # … and of Redis; "": the workers' own
    image: str  # if a definition names none
    authorities: str  # a file with certificates that pods trust; "": those of the image
    archives: Path  # folder of the tar files that pods fetch
    host: str  # name of this host
    variables: tuple[str, ...]  # that "env:NAME" may resolve
    secrets: Path


def configured() -> "PodLauncher":
    """Return the launcher for this installation's settings."""
    return PodLauncher(
        PodSettings(
            kubeconfig=settings.POD_KUBECONFIG,
            url=settings.POD_URL,
            redis_url=settings.POD_REDIS_URL,
            image=settings.POD_IMAGE,
            authorities=settings.POD_AUTHORITIES,
            archives=settings.HEADGATE_HOME / "pod-archives",
            host=settings.HEADGATE_HOST,
            variables=tuple(settings.SECRET_ENV_ALLOWLIST),
            secrets=settings.SECRETS_DIR,
        ),
        drivers_dir=settings.DRIVERS_DIR,
        code_dir=settings.CODE_DIR,
        secrets_dir=settings.SECRETS_DIR,
        isolation=self_test.isolation,
    )


class PodLauncher(LocalProcessLauncher):
    """Launch, observe and end drivers as pods, if their specs say so; all others as processes."""

    def __init__(
        self,
        pods: PodSettings,
        *,
        drivers_dir: Path,
        code_dir: Path,
        secrets_dir: Path | None = None,
        isolation: Callable[[], IsolationChoice],
    ) -> None:
        super().__init__(drivers_dir, code_dir, secrets_dir, isolation)
        self._pods = pods
        self._cluster = Cluster(Path(pods.kubeconfig)) if pods.kubeconfig else None
        #: What was announced of each pod, by its UID.
        self._heard: dict[str, tuple[bool, bool, datetime | None]] = {}
        #: What was logged about looks at each pod, by its name.
        self._notes: dict[str, Notes] = {}

    # --- launch -----------------------------------------------------------------------

    def launch(self, spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        """Record the intent, then create the pod: ConfigMap, Secret, Pod (`Launcher.launch`)."""
        directory = self.directory(spec.application, spec.epoch)
        spec = replace(spec, ended_hosts=self._ended(directory, spec.epoch))
        if not spec.pod:
            super().launch(spec, assignment, pools_xml)
            return
        cluster = self._usable(spec)
        try:
            control = DriverFolder.make(directory).control
            in_pod, files = archives.fetched(spec, self._pods.archives)
            with exclusive(control / ".pod.lock"):
                self._launch_pod(cluster, directory, spec, in_pod, files, assignment, pools_xml)
            (control / REFUSED).unlink(missing_ok=True)
        except TimeoutError as error:
            raise LaunchRefused("The driver is being launched by now.", passing=True) from error
        except OSError as error:
            raise LaunchRefused(
                f"The driver's directory {directory} cannot be used: {error}. Free disk space or "
                "fix the permissions of the drivers' folder."
            ) from error
        except (ApiAway, Rejected, objects.TooLarge) as error:
            passing = isinstance(error, ApiAway) or (isinstance(error, Rejected) and error.passing)
            if passing:  # the page says why, and the launch is tried again
                with suppress(OSError):
                    replace_file(control / REFUSED, f"{error}")
            raise LaunchRefused(f"{error}", passing=passing) from error

    def _usable(self, spec: DriverSpec) -> Cluster:
        """Return the cluster; raise `LaunchRefused` if something is missing for pods."""
        if self._cluster is None or not self._pods.url:
            missing = "HEADGATE_POD_URL" if self._cluster else "HEADGATE_POD_KUBECONFIG"
            raise LaunchRefused(
                f"The driver is a pod, but {missing} is not set on host {self._pods.host}. Set it "
                "(docs/kubernetes.md) and restart the worker."
            )
        if not objects.image_of(spec, self._pods.image):
            raise LaunchRefused(
                "The driver is a pod, but neither spark.kubernetes.container.image nor "
                "HEADGATE_POD_IMAGE names its image."
            )
        return self._cluster

    def _launch_pod(
        self,
        cluster: Cluster,
        directory: Path,
        spec: DriverSpec,
        in_pod: DriverSpec,
        files: dict[Archive, str],
        assignment: Assignment,
        pools_xml: str,
    ) -> None:
        control = DriverFolder.of(directory).control
        made = sighting.loaded(Made, control / MADE)
        if (control / EXIT).exists() or (made is not None and made.uid):
            return
        name = objects.object_name(spec)
        made = made or Made(name, objects.namespace_of(spec, cluster.namespace), uuid.uuid4().hex)
        image = objects.image_of(spec, self._pods.image)
        in_pod = replace(
            in_pod,
            redis_url=_at(spec.redis_url, self._pods.redis_url),
            conf={**spec.conf, **objects.executor_conf(spec, name, made.namespace, image)},
        )
        launch = replace(
            self._what(in_pod, assignment, pools_xml, files),
            identity=made.launch,
            lost_nodes=self._lost_nodes(directory, spec.epoch),
        )
        objects.check_sizes(launch)
        replace_file(control / MADE, made.dumps())
        replace_file(control / SPEC, spec.dumps())
        replace_file(control / POOLS, pools_xml)
        self._write_assignment(directory, assignment)
        archives.note(control, files)
        self._make_current(directory, spec.epoch)
        current = read_current(directory.parent)
        if current is not None and Current.loads(current).epoch > spec.epoch:
            at = exits.never_started().at
            report = ExitReport(FENCED, FENCED, core=False, oom=False, at=at, last_seq=0)
            replace_file(control / EXIT, report.dumps())
            return
        self._clean_up_former(cluster, directory, spec.epoch)
        fail_points.reach(fail_points.AFTER_INTENT)
        owner = self._created(cluster, "config_map", made, spec, objects.config_map(launch, name))
        bound = objects.secret(launch, name, owner)
        self._created(cluster, "secret", made, spec, bound, owner=owner)
        program = Path(fetch.__file__).read_text(encoding="utf-8")
        body = objects.pod(launch, name, owner, program)
        pod = self._created(cluster, "pod", made, spec, body, owner=owner)
        fail_points.reach(fail_points.AFTER_SPAWN)
        replace_file(control / MADE, replace(made, uid=pod["metadata"]["uid"]).dumps())

    def _what(
        self,
        spec: DriverSpec,
        assignment: Assignment,
        pools_xml: str,
        files: Mapping[Archive, str],
    ) -> objects.Launch:
        authorities = self._pods.authorities
        return objects.Launch(
            spec=spec,
            assignment=assignment,
            pools_xml=pools_xml,
            plan=Plan(
                url=f"{self._pods.url.rstrip('/')}/pods/{spec.epoch}",
                epoch=spec.epoch,
                application=spec.application,
                archives=tuple(archives.listed(files)),
            ),
            token=hosts.pod_token(spec.driver, spec.epoch),
            files=self._secret_files(spec, assignment),
            variables={name: os.environ[name] for name in spec.env_allowlist if name in os.environ},
            authorities=(read_file(Path(authorities)) or "") if authorities else "",
            default_image=self._pods.image,
        )

    def _secret_files(self, spec: DriverSpec, assignment: Assignment) -> dict[str, str]:
        """Return the secrets that definitions name and that exist, by name."""
        allowed = [entry.spec for entry in assignment.queries if not entry.refused]
        return named_secrets([asdict(spec), *allowed], self._pods.secrets)

    def _created(
        self,
        cluster: Cluster,
        kind: str,
        made: Made,
        spec: DriverSpec,
        body: Object,
        owner: Object | None = None,
    ) -> Object:
        """Create an object, or return the existing one if it is that of this launch."""
        created = cluster.create(kind, made.namespace, body)
        if created is not None:
            return created
        existing = cluster.read(kind, made.namespace, made.name)
        if existing is None:  # it is being deleted, or has been just now
            raise ApiAway(f"The {kind} {made.name} is being deleted.")
        if not objects.is_of(existing, made.launch, spec):
            raise Rejected(
                f"Namespace {made.namespace} has another {kind.replace('_', ' ')} with the name "
                f"{made.name}. Delete it, then start the application again."
            )
        if owner is not None and not objects.is_owned_by(existing, owner):
            raise ApiAway(f"The {kind} {made.name} is being deleted with its former owner.")
        return existing

    def _ended(self, directory: Path, epoch: int) -> tuple[str, ...]:
        """Return the hosts of the application's former drivers whose end was seen.

        That of this host's processes is seen by the worker before another driver is launched.
        """
        former = self._former(directory, epoch)
        pods = {made.uid for made, ended in former if ended and not made.guessed}
        return tuple(sorted({self._pods.host, *map(HOST.format, pods)}))

    def _lost_nodes(self, directory: Path, epoch: int) -> tuple[str, ...]:
        """Return the node of the newest former pod whose end was not seen, if it is not back.

        A node that has reported the end of a later one is back. An earlier one may be: all nodes
        would be avoided at last, and so none.
        """
        lost = ""
        for made, ended in self._former(directory, epoch):
            if not ended:
                lost = made.node
            elif made.node == lost:
                lost = ""
        return (lost,) if lost else ()

    def _clean_up_former(self, cluster: Cluster, directory: Path, epoch: int) -> None:
        """Delete what is left of former launches whose pods no longer exist: their secrets."""
        for made, _ in self._former(directory, epoch):
            with suppress(ApiAway, Rejected):
                if cluster.read("pod", made.namespace, made.name) is None:
                    self._clean_up(made)

    def _former(self, directory: Path, epoch: int) -> Iterator[tuple[Made, bool]]:
        """Yield the application's former pods, oldest first, and whether their end was seen."""
        epochs = (whole(control.parent.name) for control in directory.parent.glob("*/control"))
        for former in sorted(one for one in epochs if one is not None and one < epoch):
            control = DriverFolder.of(directory.parent / str(former)).control
            made = sighting.loaded(Made, control / MADE)
            if made is not None and made.uid:
                yield made, (control / EXIT).exists()

    # --- what a driver is to do -------------------------------------------------------

    def assign(self, application: str, assignment: Assignment) -> None:
        """Replace the assignment; the channel takes it to the pod, and so does the ConfigMap."""
        super().assign(application, assignment)
        made = self._made(application, assignment.epoch)
        if made is None or self._cluster is None or not made.uid:
            return
        control = DriverFolder.of(self.directory(application, assignment.epoch)).control
        spec = sighting.loaded(DriverSpec, control / SPEC)
        try:
            data = {ASSIGNMENT: read_file(control / ASSIGNMENT) or assignment.dumps()}
            self._cluster.replace_data("config_map", made.namespace, made.name, data)
            if spec is not None and (files := self._secret_files(spec, assignment)):
                secrets = {f"{FILE_PREFIX}{name}": text for name, text in files.items()}
                self._cluster.replace_data("secret", made.namespace, made.name, secrets)
        except (ApiAway, Rejected) as error:
            logger.warning("assignment of driver %s only by its channel: %s", made.name, error)

    def terminate(self, application: str, epoch: int) -> None:
        """Ask the driver to exit: its pod's first process passes that on.

        A pod that does not ask for news, because it has not started, or because the web process has
        ended, is deleted, now or at a later look: its first process is told by that as well, and
        lets the batch in flight end, within `LEAVE_S`.
        """
        made = self._made(application, epoch)
        if made is None:
            super().terminate(application, epoch)
            return
        control = DriverFolder.of(self.directory(application, epoch)).control
        with suppress(OSError):  # no folder, no space: then it is killed
            (control / TERMINATE).touch(mode=0o600)
        if not _asks(control):
            self._delete(application, epoch, made, grace_s=LEAVE_S)

    def kill(self, application: str, epoch: int, reason: Reason) -> None:
        """Delete the pod; its exit is recorded once the kubelet reports it."""
        made = self._made(application, epoch)
        if made is None:
            super().kill(application, epoch, reason)
            return
        control = DriverFolder.of(self.directory(application, epoch)).control
        with suppress(OSError):
            replace_file(control / KILL_REASON, reason)
        self._delete(application, epoch, made, grace_s=_KILL_GRACE_S)

    def _delete(self, application: str, epoch: int, made: Made, *, grace_s: int) -> None:
        """Delete exactly the driver's own pod."""
        if self._cluster is None:
            return
        try:
            uid = made.uid or self._uid_of(application, epoch, made)
            if uid:
                self._cluster.delete("pod", made.namespace, made.name, uid, grace_s=grace_s)
        except (ApiAway, Rejected) as error:
            logger.warning("pod %s not deleted: %s", made.name, error)

    def _uid_of(self, application: str, epoch: int, made: Made) -> str:
        """Return the UID of a driver's pod that was not recorded; "" for a pod of others."""
        control = DriverFolder.of(self.directory(application, epoch)).control
        pod = self._cluster.read("pod", made.namespace, made.name) if self._cluster else None
        return str(pod["metadata"]["uid"]) if pod and _is_ours(pod, made, control) else ""

    def seal(self, application: str, epoch: int) -> bool:
        """Make sure that a pod that has not been created is never created (`Launcher.seal`)."""
        directory = self.directory(application, epoch)
        try:
            control = DriverFolder.make(directory).control
            with exclusive(control / ".pod.lock"):  # `launch` holds it until the pod is recorded
                made = self._made(application, epoch)
                if made is None:
                    return super().seal(application, epoch)
                if (control / EXIT).exists():
                    return True
                if self._cluster is None:
                    raise ApiAway("HEADGATE_POD_KUBECONFIG is not set.")
                if made.uid or self._uid_of(application, epoch, made):
                    return False
                replace_file(control / EXIT, exits.never_started().dumps())
        except (OSError, ApiAway, Rejected) as error:
            raise LaunchRefused(
                f"It cannot be made sure that the driver in {directory} does not start: {error}",
                passing=True,
            ) from error
        self._clean_up(made)
        return True

    # --- what is seen -----------------------------------------------------------------

    def sight(
        self,
        application: str,
        epoch: int,
        *,
        probe: bool = False,
        locations: tuple[str, ...] = (),
        identity: Mapping[str, str | int] | None = None,
    ) -> Sighting:
        """Return a driver's state: its files from this host's copy, its end from the API server."""
        made = None if probe else self._made(application, epoch)
        if made is None:
            return super().sight(
                application, epoch, probe=probe, locations=locations, identity=identity
            )
        directory = self.directory(application, epoch)
        control = DriverFolder.of(directory).control
        seen = None if (control / EXIT).exists() else self._look(directory, made)
        report = sighting.loaded(ExitReport, control / EXIT)
        if report is not None or seen is None:
            made = self._made(application, epoch) or made
            seen = Sighting(Liveness.EXITED, exit=report, ended=made.ended)
        assignment = sighting.loaded(Assignment, control / ASSIGNMENT)
        return replace(
            seen,
            status=sighting.status_in(directory),
            assignment_generation=assignment.generation if assignment is not None else 0,
        )

    def _look(self, directory: Path, made: Made) -> Sighting | None:
        """Return what the API server shows of a pod; None if its end was recorded now."""
        if self._cluster is None:
            logger.warning("pod %s cannot be seen: HEADGATE_POD_KUBECONFIG is not set", made.name)
            return Sighting(Liveness.ALIVE, pending="HEADGATE_POD_KUBECONFIG is not set any more.")
        control = DriverFolder.of(directory).control
        try:
            found = self._cluster.read("pod", made.namespace, made.name)
            if found is not None and not made.uid and _is_ours(found, made, control):
                with exclusive(control / ".pod.lock"):  # a worker ended before it recorded it
                    made = replace(made, uid=str(found["metadata"]["uid"]))
                    replace_file(control / MADE, made.dumps())
            if (notes := self._notes.pop(made.name, None)) is not None:
                notes.fine()
        except (ApiAway, Rejected, TimeoutError) as error:  # what is not seen is not gone
            self._notes.setdefault(made.name, Notes(f"pod {made.name}")).problem(f"{error}")
            return Sighting(Liveness.ALIVE if made.uid else Liveness.SPAWNING, pending=f"{error}")
        pod = driver_pod(found) if found is not None else None
        if not made.uid:
            return Sighting(Liveness.ABSENT, pending=read_file(control / REFUSED))
        if pod is None or pod.uid != made.uid:
            return Sighting(Liveness.GONE, ended=_NOT_SEEN if made.node else _NEVER_RAN)
        if pod.terminated:
            self._note_end(directory, made, pod)
            return None
        if pod.node and pod.node != made.node:
            with suppress(OSError), exclusive(control / ".pod.lock"):
                now = sighting.loaded(Made, control / MADE) or made
                replace_file(control / MADE, replace(now, node=pod.node).dumps())
        is_leaving = pod.deleting or (directory / "own" / EXIT).exists()
        if (control / TERMINATE).exists() and not is_leaving and not _asks(control):
            self._delete(directory.parent.name, int(directory.name), made, grace_s=LEAVE_S)
        if pod.node_lost:
            return Sighting(Liveness.GONE, ended=pod.ended)
        if pod.started_at is None:
            return Sighting(Liveness.SPAWNING, pending=pod.waits)
        return Sighting(Liveness.ALIVE, began_at=pod.started_at)

    def _note_end(self, directory: Path, made: Made, pod: DriverPod) -> None:
        """Record how a driver ended, and delete its objects."""
        folder = DriverFolder.of(directory)
        spec = sighting.loaded(DriverSpec, folder.control / SPEC)
        if spec is None or (folder.control / EXIT).exists():
            return
        reason = exits.kill_reason(folder)
        code = pod.exit_code
        name = "UNKNOWN" if code is None else exits.exit_name(128 - code if code > 128 else code)
        python, jvm, reported_oom = self._reported(folder) or (name, "UNKNOWN", False)
        report = exits.build(
            folder,
            spec,
            python=python,
            jvm=jvm,
            core=False,
            oom_killed=reported_oom or pod.oom,
            killed=Killer.WORKER if reason else Killer.NOBODY,
            kill_reason=reason,
            at=exits.never_started().at,
        )
        is_ours = reason or (folder.control / TERMINATE).exists()
        ended = pod.ended or (_DELETED if pod.deleting and not is_ours else "")
        with exclusive(folder.control / ".pod.lock"):
            if (folder.control / EXIT).exists():  # the watch and a look see the same end
                return
            now = sighting.loaded(Made, folder.control / MADE) or made
            seen = replace(now, ended=ended, guessed=pod.guessed)
            replace_file(folder.control / MADE, seen.dumps())
            replace_file(folder.control / EXIT, report.dumps())
        self._notes.pop(made.name, None)
        self._clean_up(made)

    def _reported(self, folder: DriverFolder) -> tuple[str, str, bool] | None:
        """Return how Python and the JVM ended, and whether for lack of memory, as the pod reported.

        Users' code can write the file too, so it decides nothing: None for anything unusual.
        """
        try:
            text = read_file(folder.own / EXIT, most=1_000_000, within=folder.root) or ""
            report = json.loads(text)
            ends = (report["python"], report["jvm"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        if not all(isinstance(end, str) and _END.fullmatch(end) for end in ends):
            return None
        return ends[0], ends[1], report.get("oom") is True

    def _clean_up(self, made: Made) -> None:
        """Delete the ConfigMap, which owns the pod and the Secret."""
        if self._cluster is None:
            return
        try:
            owner = self._cluster.read("config_map", made.namespace, made.name)
            if owner is not None and objects.launch_of(owner) == made.launch:
                uid = owner["metadata"]["uid"]
                self._cluster.delete("config_map", made.namespace, made.name, uid)
        except (ApiAway, Rejected) as error:
            logger.warning("objects of %s not deleted: %s", made.name, error)

    def prune(self, application: str, *, keep: int) -> None:
        """Remove the files of ended drivers and probes, and unused tar files."""
        super().prune(application, keep=keep)
        archives.prune(self._pods.archives, now=time.time())

    # --- news -------------------------------------------------------------------------

    @contextmanager
    def exits(self) -> Iterator[Callable[[float], int | None]]:
        """Listen for shims, and watch pods, which announce their exits in the same way."""
        with ExitStack() as stack:
            heard = stack.enter_context(super().exits())
            if self._cluster is not None:
                watch = Watch(self._cluster, self._namespaces, self._hear)
                stack.enter_context(watch.running())
            yield heard

    def _namespaces(self) -> set[str]:
        """Return the namespaces of drivers' pods, also of those that have ended.

        Deleting what is left of them may have failed.
        """
        files = self._drivers.glob(f"*/*/control/{MADE}")
        return {made.namespace for file in files if (made := sighting.loaded(Made, file))}

    def _hear(self, pod: Object) -> None:
        """Record a pod's end if it is one of this host's drivers, and announce it."""
        labels = (pod.get("metadata") or {}).get("labels") or {}
        epoch = whole(str(labels.get(f"{OUR_LABELS}epoch", "")))
        if epoch is None:
            return
        for control in self._drivers.glob(f"*/{epoch}/control"):
            made, seen = sighting.loaded(Made, control / MADE), driver_pod(pod)
            if made is None or made.name != seen.name or made.uid != seen.uid:
                continue
            if (control / EXIT).exists():
                self._clean_up(made)  # it could not be done at that time
                self._heard.pop(seen.uid, None)
                continue
            if seen.terminated:
                self._note_end(control.parent, made, seen)
            news = (seen.terminated, seen.node_lost, seen.started_at)
            spec = sighting.loaded(DriverSpec, control / SPEC)
            if spec is not None and self._heard.get(seen.uid) != news:
                self._heard[seen.uid] = news
                exits.call(self._drivers, spec.driver)

    # --- helpers ----------------------------------------------------------------------

    def _made(self, application: str, epoch: int) -> Made | None:
        """Return what was created for a driver that is a pod; None for a process."""
        control = DriverFolder.of(self.directory(application, epoch)).control
        return sighting.loaded(Made, control / MADE)


def _asks(control: Path) -> bool:
    """Return whether a driver's pod has asked for news lately."""
    with suppress(OSError):
        return time.time() - (control / ASKED).stat().st_mtime < _UNHEARD_S
    return False


def _is_ours(pod: Object, made: Made, control: Path) -> bool:
    """Return whether a pod belongs to the launch of a driver."""
    spec = sighting.loaded(DriverSpec, control / SPEC)
    return spec is not None and objects.is_of(pod, made.launch, spec)


def _at(url: str, place: str) -> str:
    """Return a URL with scheme and host, and the port if there is one, of another."""
    if not place or not url:
        return url
    ours, theirs = urlsplit(url), urlsplit(place)
    user = ours.netloc.rpartition("@")[0]
    where = theirs.netloc.rpartition("@")[2]
    if theirs.port is None and ours.port is not None:
        where = f"{where}:{ours.port}"
    return urlunsplit(
        ours._replace(scheme=theirs.scheme, netloc=f"{user}@{where}" if user else where)
    )
