"""Start a Kubernetes cluster of two nodes; `make kubernetes` calls this once it is built."""

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from controlplane.home import StartProblem
from headgate_server import places
from headgate_server.container_images import IMAGE
from installation.machine.kubernetes import Kubernetes
from installation.machine.kubernetes_keys import NAMESPACE


class Command(BaseCommand):
    """Start the trial cluster if necessary; print how to use it in an application."""

    help = "Start a trial Kubernetes cluster of two nodes on this host."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Start it and print its address."""
        cluster = Kubernetes.of(settings.HOME)
        try:
            settings.HOME.make()
            self.stdout.write(f"Starting Kubernetes with {len(cluster.nodes)} nodes…")
            cluster.start()
        except StartProblem as trouble:
            self.stderr.write(str(trouble))
            sys.exit(1)
        self.stdout.write(f"Master       {cluster.master}")
        self.stdout.write(f"Kubeconfig   {cluster.kubeconfig}")
        self.stdout.write(f"Image        {IMAGE}")
        self.stdout.write(f"Logs         {cluster.home.logs}")
        hint = (
            f"Run Headgate with HEADGATE_KUBECONFIG={cluster.kubeconfig}. Set an application's "
            f"master to {cluster.master} and, in its configuration, "
            f"spark.kubernetes.container.image to {IMAGE} and spark.kubernetes.namespace to "
            f"{NAMESPACE}; see docs/kubernetes.md. `make stop` ends the cluster."
        )
        self.stdout.write(places.with_local_commands(hint))
        drivers = (
            f"For drivers that are pods, run it with HEADGATE_POD_KUBECONFIG="
            f"{cluster.worker_kubeconfig}, HEADGATE_POD_IMAGE={IMAGE}, HEADGATE_POD_URL="
            f"http://{cluster.host}:{settings.HEADGATE_PORT} and HEADGATE_POD_REDIS_URL="
            f"redis://{cluster.host}. Pods reach the web process, the embedded Valkey and the "
            f"trial S3 gateway at {cluster.host}, on the ports that these have on 127.0.0.1."
        )
        self.stdout.write(drivers)
