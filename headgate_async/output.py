"""Return outcomes to Spark as Arrow batches, with the hidden columns."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from headgate_async.calls import Outcome
from headgate_async.counts import Counts
from headgate_async.metrics import HIDDEN, hidden_columns
from headgate_async.rows import Shape, as_json, columns_of, identity_of

#: The column with the details of a row that was given up; null for all others.
LETTER = "dead_letter"
LETTER_FIELD = StructField(
    LETTER, StructType([StructField(one, StringType()) for one in ("identity", "error", "row")])
)
_LETTER_TYPE = pa.struct([("identity", pa.string()), ("error", pa.string()), ("row", pa.string())])
#: An error's text may quote whole pages of a remote service.
ERROR_CHARACTERS = 2000


class Emission:
    """Makes Arrow batches of a schema from outcomes."""

    def __init__(self, schema: pa.Schema, *, dead_letters: bool) -> None:
        self._schema = schema
        self._shape = Shape(schema.names)
        self._letters = dead_letters
        letter = [LETTER] if dead_letters else []
        self._names = [*schema.names, *letter, *HIDDEN]

    def batch(self, outcomes: Sequence[Outcome], counts: Counts) -> pa.RecordBatch:
        """Return the batch of these outcomes.

        A row without a result still gets a temporary row here, to record its latency; so do counts
        that arrive without an outcome.
        """
        shape, empty = self._shape, (None,) * len(self._schema)
        rows: list[tuple[Any, ...]] = []
        latency: list[float | None] = []
        waited: list[float | None] = []
        visible: list[bool] = []
        letters: list[dict[str, str] | None] = []
        for row, result, error, latency_ms, waited_ms in outcomes:
            if error is not None:
                rows.append(empty)
                letters += [None] * (len(rows) - 1 - len(letters))
                letters.append(_letter(row, error))
            elif type(result) is tuple:
                rows.append(shape.row_of(result))
            else:
                tuples = shape.tuples(result)
                rows += tuples or [empty]
                further = [None] * (len(tuples) - 1)  # the latency is in a result's first row
                latency += [latency_ms, *further]
                waited += [waited_ms, *further]
                visible += [True] * len(tuples) or [False]
                continue
            latency.append(latency_ms)
            waited.append(waited_ms)
            visible.append(True)
        if not rows:
            rows, latency, waited, visible = [empty], [None], [None], [False]
        columns = columns_of(rows, self._schema)
        if self._letters:
            letters += [None] * (len(rows) - len(letters))
            columns.append(pa.array(letters, _LETTER_TYPE))
        columns += hidden_columns(counts, latency, waited, visible)
        return pa.RecordBatch.from_arrays(columns, names=self._names)


def _letter(row: Any, error: BaseException) -> dict[str, str]:
    text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
    return {"identity": identity_of(row), "error": text, "row": as_json(row)}
