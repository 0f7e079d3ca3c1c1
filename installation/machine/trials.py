"""The trial servers of an installation."""

from django.conf import settings

from controlplane.home import Home
from installation.machine.daemon import Daemon
from installation.machine.hadoop import MiniHadoop
from installation.machine.kafka import Broker
from installation.machine.s3 import Gateway


def servers(home: Home) -> list[Daemon]:
    """Return all servers, whether they exist or not."""
    return [
        *with_the_demo(home),
        MiniHadoop(home.hadoop, port=settings.HADOOP_PORT),
    ]


def with_the_demo(home: Home) -> list[Broker | Gateway]:
    """Return the servers that the demo uses, and `make run` keeps running once they exist."""
    return [Broker(home.kafka), Gateway(home.s3)]
