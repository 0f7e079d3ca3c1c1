"""Limit a probe's input and time, and keep its output away from the definition's targets.

Definitions of both kinds create readers and writers through PySpark's own classes, so the limits
are set there: a source returns a little data at a time and never cleans up its files, and a user's
own writer records where it would have written.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from queries.domain.definitions.spec import FILES as SAVED

#: Seconds between two looks, at most.
_LOOK_S = 1.0


class TimeLimit:
    """A time limit that starts again whenever something has moved, up to a maximum."""

    def __init__(
        self,
        limit_s: float,
        *,
        most_s: float,
        moved: Callable[[], bool],
        over: Callable[[str], None],
    ) -> None:
        """Begin now. `moved` is called every second.

        `over` is called once, from another thread, with a description: "not finished within…".
        """
        self._limit_s, self._most_s = limit_s, max(limit_s, most_s)
        self._moved, self._over = moved, over
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="time-limit", daemon=True).start()

    def end(self) -> None:
        """Lift the limit."""
        self._ended.set()

    def _watch(self) -> None:
        began = since = time.monotonic()
        while not self._ended.wait(min(_LOOK_S, self._limit_s)):
            if self._moved():
                since = time.monotonic()
            now = time.monotonic()
            if now - began >= self._most_s:
                self._over(f"Not finished within {self._most_s:.0f} s")
                return
            if now - since >= self._limit_s:
                self._over(f"No progress for {self._limit_s:.0f} s")
                return


FILES = "2"  # per fresh batch
OFFSETS = "1000"  # per fresh batch, over all partitions
FILE_FORMATS = SAVED | {"xml", "binaryfile"}  # including those that only code can specify

_ICEBERG_FILES = "streaming-max-files-per-micro-batch"
_ASYNC = "asyncprogresstrackingenabled"
_BOUNDS = {
    "maxfilespertrigger": FILES,
    _ICEBERG_FILES: FILES,
    "maxoffsetspertrigger": OFFSETS,
    "minoffsetspertrigger": "1",
    "cleansource": "off",
}


def bound_readers(reader: type) -> None:
    """Limit the batch size of every stream read from now on, and never clean up its files."""
    option, load, use = reader.option, reader.load, reader.format  # type: ignore[attr-defined]

    def noted_format(self: Any, source: str) -> Any:
        self._probed_format = source.lower()
        return use(self, source)

    def bounded_option(self: Any, key: str, value: Any) -> Any:
        options_set = self.__dict__.setdefault("_probed_options", set())
        options_set.add(key.lower())
        return option(self, key, _BOUNDS.get(key.lower(), value))

    def bounded_options(self: Any, **options: Any) -> Any:
        for key, value in options.items():
            bounded_option(self, key, value)
        return self

    def bounded_load(
        self: Any, path: Any = None, format: Any = None, schema: Any = None, **options: Any
    ) -> Any:
        if format is not None:
            noted_format(self, format)
        bounded_options(self, **options)
        _bound(self, option)
        return load(self, path, None, schema)

    table = reader.table  # type: ignore[attr-defined]

    def bounded_table(self: Any, name: str) -> Any:
        _bound(self, option)
        return table(self, name)

    reader.table = bounded_table  # type: ignore[attr-defined]
    reader.format, reader.option = noted_format, bounded_option  # type: ignore[attr-defined]
    reader.options, reader.load = bounded_options, bounded_load  # type: ignore[attr-defined]
    for name in FILE_FORMATS:
        if read := getattr(reader, name, None):  # Spark has no method for avro and binaryFile
            setattr(reader, name, _bounded_file(name, read, option))


def _bounded_file(name: str, read: Callable[..., Any], option: Callable[..., Any]) -> Any:
    def bounded(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._probed_format = name
        _bound(self, option)
        return read(self, *args, **kwargs)

    return bounded


def _bound(reader: Any, option: Callable[..., Any]) -> None:
    options_set = reader.__dict__.get("_probed_options", set())
    source = reader.__dict__.get("_probed_format", "")
    if source in FILE_FORMATS:
        option(reader, "cleanSource", "off")
        if "maxbytespertrigger" not in options_set:  # Spark accepts only one of the two
            option(reader, "maxFilesPerTrigger", FILES)
    elif source == "delta":
        option(reader, "maxFilesPerTrigger", FILES)
    elif source == "iceberg":
        option(reader, _ICEBERG_FILES, FILES)
    elif source == "kafka":
        option(reader, "maxOffsetsPerTrigger", OFFSETS)


def note_writers(writer: type) -> None:
    """Make every writer record its format and output mode, which Spark does not expose."""
    use, mode = writer.format, writer.outputMode  # type: ignore[attr-defined]

    def noted_format(self: Any, source: str) -> Any:
        self._probed_format = source.lower()
        return use(self, source)

    def noted_mode(self: Any, output_mode: str) -> Any:
        self._probed_mode = output_mode.lower()
        return mode(self, output_mode)

    option, options = writer.option, writer.options  # type: ignore[attr-defined]

    def noted_option(self: Any, key: str, value: Any) -> Any:
        _noted(self)[key.lower()] = str(value).lower()
        return option(self, key, value)

    def noted_options(self: Any, **given: Any) -> Any:
        _noted(self).update({key.lower(): str(value).lower() for key, value in given.items()})
        return options(self, **given)

    writer.format, writer.outputMode = noted_format, noted_mode  # type: ignore[attr-defined]
    writer.option, writer.options = noted_option, noted_options  # type: ignore[attr-defined]
    for name in ("foreachBatch", "foreach"):
        setattr(writer, name, _noted_call(name, getattr(writer, name)))


def _noted_call(name: str, call: Callable[..., Any]) -> Any:
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._probed_format = name
        return call(self, *args, **kwargs)

    return noted


def _noted(writer: Any) -> dict[str, str]:
    noted: dict[str, str] = writer.__dict__.setdefault("_probed_options", {})
    return noted


def tracks_asynchronously(writer: Any) -> bool:
    """Return whether async progress tracking was enabled on a writer."""
    return _noted(writer).get(_ASYNC) == "true"


def written_to(writer: Any) -> tuple[str, str]:
    """Return the format and output mode set on a user's own writer."""
    attributes = writer.__dict__
    return attributes.get("_probed_format", ""), attributes.get("_probed_mode", "append")
