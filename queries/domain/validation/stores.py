"""The object stores that a definition's places are in, and the connectors that open them.

Spark's own package opens local files and HDFS. Any other store needs a connector with Hadoop's
client for it; without one, the first start fails with "No FileSystem for scheme".
"""

from collections.abc import Iterable

from queries.domain.definitions.data_roots import unnamed_places
from queries.domain.definitions.locations import on_yarn
from queries.domain.errors import Problem
from queries.domain.validation.formats import no_connector

#: URL scheme -> connector with its file system (Hadoop: hadoop-aws, hadoop-azure, hadoop-gcp).
_CONNECTORS = {
    "s3a": "s3",
    "abfs": "azure",
    "abfss": "azure",
    "wasb": "azure",
    "wasbs": "azure",
    "gs": "gcs",
}


def connector_of(location: str) -> str:
    """Return the connector that opens a place, a path or URL; "" if Spark itself does."""
    scheme, colon, _ = location.strip().partition(":")
    return _CONNECTORS.get(scheme.lower(), "") if colon else ""


def yarn_problems(places: Iterable[tuple[str, str]], master: str) -> list[Problem]:
    """Return a problem for each place that a YARN cluster would complete, and Headgate would not.

    Everywhere else, drivers set the default file system to the host's disk.
    """
    if master != "yarn":
        return []
    return [on_yarn(field, text) for field, text in unnamed_places(places)]


def store_problems(
    places: Iterable[tuple[str, str]], connectors: Iterable[str], recipes: frozenset[str]
) -> list[Problem]:
    """Return a problem for each place, by field and text, that no connector opens.

    `connectors` are those of the application. One without a recipe of ours may contain the client
    of any store, so nothing is known then.
    """
    declared = frozenset(connectors)
    if declared - recipes:
        return []
    return [
        no_connector(field, location, connector)
        for field, location in places
        if (connector := connector_of(location)) and connector not in declared
    ]
