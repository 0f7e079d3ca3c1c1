"""Keep a probe's reading small and its writing away from where the definition points.

Definitions of both kinds make readers and writers through PySpark's own classes, so those are
what is bounded: a source gives a little at a time and never cleans up behind itself, and a
writer of the user's own tells what it would have written to.
"""

from collections.abc import Callable
from typing import Any

from queries.domain.validation.formats import FILES as SAVED

FILES = "2"  # a fresh batch's
OFFSETS = "1000"  # a fresh batch's, of all partitions together
FILE_FORMATS = SAVED | {"xml", "binaryfile"}  # those too that only code can name

_ASYNC = "asyncprogresstrackingenabled"
_BOUNDS = {
    "maxfilespertrigger": FILES,
    "maxoffsetspertrigger": OFFSETS,
    "minoffsetspertrigger": "1",
    "cleansource": "off",
}


def bound_readers(reader: type) -> None:
    """Make every stream that is read from now on give little and leave its files alone."""
    option, load, use = reader.option, reader.load, reader.format  # type: ignore[attr-defined]

    def noted_format(self: Any, source: str) -> Any:
        self._probed_format = source.lower()
        return use(self, source)

    def bounded_option(self: Any, key: str, value: Any) -> Any:
        asked = self.__dict__.setdefault("_probed_options", set())
        asked.add(key.lower())
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
    asked = reader.__dict__.get("_probed_options", set())
    source = reader.__dict__.get("_probed_format", "")
    if source in FILE_FORMATS:
        option(reader, "cleanSource", "off")
        if "maxbytespertrigger" not in asked:  # Spark takes one of the two only
            option(reader, "maxFilesPerTrigger", FILES)
    elif source == "kafka":
        option(reader, "maxOffsetsPerTrigger", OFFSETS)


def note_writers(writer: type) -> None:
    """Have every writer remember its format and output mode, which Spark keeps to itself."""
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
    """Tell whether a writer was given async progress tracking."""
    return _noted(writer).get(_ASYNC) == "true"


def written_to(writer: Any) -> tuple[str, str]:
    """Return the format and the output mode that a user's own writer was given."""
    held = writer.__dict__
    return held.get("_probed_format", ""), held.get("_probed_mode", "append")
