"""The relations that a SQL text names, as Spark's own parser has read them.

Spark parses the text and analyzes nothing, so that no catalog is asked. The result depends on the
text alone; it is stored with the revision, and lineage uses it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

#: More relations than anybody writes; a text that names more is unknown.
MOST_RELATIONS = 2_000


@dataclass(frozen=True, slots=True)
class SqlReads:
    """The relations of a text, and why others are unknown, as parts of sentences."""

    relations: tuple[tuple[str, ...], ...] = ()  # parts of names, without the names of WITH
    unknown: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it in the form that revisions store."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Return it from its JSON form; raise ValueError if it is none."""
        if not isinstance(stored, Mapping) or set(stored) != {"relations", "unknown"}:
            raise ValueError("not the relations of a text")
        relations, unknown = stored["relations"], stored["unknown"]
        if not isinstance(relations, list | tuple) or not all(map(_is_texts, relations)):
            raise ValueError("the relations of a text are not names")
        if len(relations) > MOST_RELATIONS or not all(relations) or not _is_texts(unknown):
            raise ValueError("the relations of a text are too many, or without a name")
        return cls(tuple(tuple(names) for names in relations), tuple(unknown))


#: A text that Spark's parser rejects.
REJECTED = SqlReads(unknown=("Spark's parser rejects it",))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
