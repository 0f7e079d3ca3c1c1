"""A batch that Spark repeated without reading its rows is told from one that had none."""

from typing import Any

import pytest

from queries.domain.checkpoints.batches import is_uncounted

#: As Spark 4.3.0 reported a batch whose commit was missing and whose foreachBatch skipped it.
REPEATED: dict[str, Any] = {
    "batchId": 2,
    "numInputRows": 0,
    "durationMs": {
        **{"addBatch": 827, "commitOffsets": 36, "getBatch": 45},
        **{"queryPlanning": 35, "triggerExecution": 956},
    },
    "sources": [{"startOffset": {"logOffset": 1}, "endOffset": {"logOffset": 2}}],
}
FIRST = {**REPEATED["durationMs"], "latestOffset": 360, "walCommit": 301}


def test_a_batch_that_the_log_held_and_nobody_read_is_uncounted() -> None:
    assert is_uncounted(REPEATED)
    begun = [{"startOffset": None, "endOffset": {"t": {"0": 4}}}]
    assert is_uncounted({**REPEATED, "sources": begun})


@pytest.mark.parametrize(
    "changes",
    [
        {"numInputRows": 1},  # repeated and read again
        {"numInputRows": None},
        {"durationMs": FIRST},  # constructed by this run: it had no rows, as with transactions
        {"durationMs": {"triggerExecution": 9}},  # a continuous epoch
        {"durationMs": None},
        {"sources": [{"startOffset": {"logOffset": 2}, "endOffset": {"logOffset": 2}}, 4]},
        {"sources": 5},
    ],
)
def test_any_other_batch_is_counted_or_unknown(changes: dict[str, Any]) -> None:
    assert not is_uncounted({**REPEATED, **changes})
