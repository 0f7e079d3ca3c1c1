"""Catalogs that admins declare, in a driver: what Spark connects to, and which answers it uses.

A REST catalog's server configures its client, with classes, addresses, credentials and files. The
driver uses what the admin has declared and nothing else: `CheckedRestCatalog`, our class, passes
every answer to `refusal` before Iceberg uses it. A table is checked whenever it is loaded,
refreshed for a batch, created or committed to.

Not checked: the data files that a table's manifests list, and redirects, which Iceberg's HTTP
client follows.

Sources: Iceberg 1.10.0 and 1.11.0, RESTSessionCatalog, RESTTableOperations, TableProperties.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headgate_ground.masking import MASK
from queries.domain.catalogs import (
    ALLOWED_PROPERTIES,
    CATALOG_CLASS,
    PREFIX,
    CatalogSpec,
    catalog_conf,
)
from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.secret_references import References

CLASS = "headgate.CheckedRestCatalog"
_SOURCE = Path(__file__).parents[1] / "jvm" / "iceberg" / "CheckedRestCatalog.java"
#: Milliseconds, unless the catalog has its own; Iceberg's client has none.
_LIMITS = {
    "rest.client.connection-timeout-ms": "30000",
    "rest.client.socket-timeout-ms": "120000",
}
#: What a server may choose: how its answers are cut, and what they contain.
_SERVERS_CHOICE = frozenset(
    {
        "namespace-separator",
        "rest-page-size",
        "rest-metrics-reporting-enabled",
        "snapshot-loading-mode",
        "view-endpoints-supported",
    }
)
#: Credentials that a server may issue if the catalog's credentials are vended.
_VENDED = re.compile(
    r"s3\.(access-key-id|secret-access-key|session-token|session-token-expires-at-ms)"
)
#: Where it renews them, and the values that stay on the server.
_RENEWAL, _ON_SERVER = "client.refresh-credentials-endpoint", re.compile(r"/?[\w%-][\w.%/-]*")
#: A table's properties that specify where its files are written.
_WRITTEN = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_PROVIDER = "write.location-provider.impl"


class CatalogUnavailable(Exception):
    """A declared catalog cannot be used by this driver; the message is a sentence."""


def spark_conf(catalogs: tuple[CatalogSpec, ...]) -> dict[str, str]:
    """Return what Spark's configuration contains of the catalogs: names, no address, no secret."""
    conf = {}
    for catalog in catalogs:
        conf[f"{PREFIX}{catalog.name}"] = CATALOG_CLASS
        conf[f"{PREFIX}{catalog.name}.catalog-impl"] = CLASS
        conf |= {
            key: value
            for key, value in catalog_conf(catalog).items()
            if key.startswith(f"{PREFIX}{catalog.name}.cache") or key.endswith("default-namespace")
        }
    return conf


def is_checked(session: Any, catalog: str) -> bool:
    """Return whether a catalog is one that an admin declared, whose tables are checked on load."""
    return bool(session.conf.get(f"{PREFIX}{catalog}.catalog-impl", "") == CLASS)


def declare(
    gateway: Any,
    catalogs: tuple[CatalogSpec, ...],
    roots: AllowedPaths | None,
    references: References,
    folder: Path,
) -> None:
    """Declare the catalogs in the JVM, before any session uses them.

    The class is compiled into `folder`, with Spark's compiler and the application's Iceberg.
    Raises `CatalogUnavailable`, or `ReferenceMissing` if a secret cannot be read.
    """
    if not catalogs:
        return
    checked = _load_class(gateway, folder)
    for catalog in catalogs:
        properties = _properties(catalog)
        if catalog.secret:
            properties[catalog.auth.value] = references.resolve(catalog.secret)
        values = gateway.jvm.java.util.HashMap()
        for key, value in properties.items():
            values.put(key, value)
        checked.declare(catalog.name, values, _Judge(catalog, roots))


def _properties(catalog: CatalogSpec) -> dict[str, str]:
    """Return the properties of Iceberg's REST catalog, without the secret."""
    prefix = f"{PREFIX}{catalog.name}."
    declared = {
        key.removeprefix(prefix): value
        for key, value in catalog_conf(catalog).items()
        if key.startswith(prefix)
    }
    return _LIMITS | {key: value for key, value in declared.items() if key != "type"}


def _load_class(gateway: Any, folder: Path) -> Any:
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    try:
        compiler.cook(_SOURCE.name, jvm.java.io.StringReader(_SOURCE.read_text()))
    except Exception as error:
        java = getattr(error, "java_exception", None)
        why = str(java.getMessage()).splitlines()[0][:200] if java is not None else str(error)[:200]
        raise CatalogUnavailable(
            f"The application's catalogs need the connector iceberg, 1.10 or 1.11: {why}"
        ) from None
    for name, code in compiler.getBytecodes().items():
        file = folder / f"{name.replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    loader.addURL(jvm.java.io.File(f"{folder}/").toURI().toURL())
    return jvm.headgate.CheckedRestCatalog


class _Judge:
    """Accepts or refuses a catalog's answers; the JVM calls it in the thread that waits for one."""

    def __init__(self, catalog: CatalogSpec, roots: AllowedPaths | None) -> None:
        self._catalog, self._roots = catalog, roots

    def apply(self, answer: str) -> str:
        return refusal(self._catalog, json.loads(answer), self._roots, os.path.realpath)

    class Java:
        implements = ("java.util.function.Function",)


def refusal(
    catalog: CatalogSpec,
    answer: Mapping[str, Any],
    roots: AllowedPaths | None,
    resolve: Callable[[str], str],
) -> str:
    """Return why an answer of a REST catalog is not used, as sentences; "" if it is.

    `answer` contains the answer's `type`, and of a configuration or a table everything that can
    name a class, an address, a credential or a file. `resolve` follows the links of a local path.
    """
    why = next(_refusals(catalog, answer, roots, resolve), "")
    return f"Catalog {catalog.name}: {why}" if why else ""


def _refusals(
    catalog: CatalogSpec,
    answer: Mapping[str, Any],
    roots: AllowedPaths | None,
    resolve: Callable[[str], str],
) -> Iterator[str]:
    match answer["type"]:
        case "ConfigResponse":
            declared = _properties(catalog)  # takes precedence over defaults
            defaults = {key: at for key, at in answer["defaults"].items() if key not in declared}
            yield from _of_keys(catalog, defaults)
            yield from _of_keys(catalog, answer["overrides"])
        case "LoadTableResponse":
            yield from _of_table(catalog, answer, roots, resolve)
        case "LoadViewResponse":
            yield "the name is that of a view. Use a table: views can read anything."
        case other:
            yield f"the server's answer is a {other}, which Headgate does not accept."


def _of_keys(catalog: CatalogSpec, sent: Mapping[str, Any]) -> Iterator[str]:
    """Yield why keys that a server sent are refused: all that the admin has not declared."""
    declared = _properties(catalog)
    for key, value in sent.items():
        if (
            key in _SERVERS_CHOICE
            or str(value).rstrip("/") == declared.get(key, "").rstrip("/") != ""
            or (catalog.vended and _VENDED.fullmatch(key))
            or (catalog.vended and key == _RENEWAL and _ON_SERVER.fullmatch(str(value)))
        ):
            continue
        name, way_out = key[:200], "Headgate does not let a server set it."
        if _VENDED.fullmatch(key):
            way_out = "Ask an admin to allow vended credentials for the catalog."
        elif key in ALLOWED_PROPERTIES[catalog.type] or key == "warehouse":
            way_out = f"If {str(value)[:200]!r} is right, ask an admin to declare it."
        yield f"the server sets {name} to {_shown(catalog, key, value)}. {way_out}"


def _shown(catalog: CatalogSpec, key: str, value: Any) -> str:
    public = key in ALLOWED_PROPERTIES[catalog.type] or key.endswith(("uri", "impl", "endpoint"))
    return repr(str(value)[:200]) if public else MASK


def _of_table(
    catalog: CatalogSpec,
    answer: Mapping[str, Any],
    roots: AllowedPaths | None,
    resolve: Callable[[str], str],
) -> Iterator[str]:
    yield from _of_keys(catalog, answer["config"])
    for credential in answer["credentials"]:
        if not catalog.vended:
            yield "the server sends credentials. Ask an admin to allow vended credentials."
        yield from _of_keys(catalog, credential)
    properties = answer["properties"]
    if provider := properties.get(_PROVIDER):
        yield f"the table's property {_PROVIDER} names a class, {str(provider)[:200]!r}. Remove it."
    places = [("location", answer["location"])]
    places += [(key, properties[key]) for key in _WRITTEN if key in properties]
    places += [("metadata", folder) for folder in answer["folders"]]
    for field, place in places:
        if roots is None or not place:
            yield f"the table's {field} is not known. Headgate does not open it."
        elif problem := roots.problem(field, place, resolve):
            yield f"the table's {field} {place[:200]} {problem.message} {problem.way_out}"
