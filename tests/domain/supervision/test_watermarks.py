"""What a watermark after the year 9999 means, and the column that it most likely comes from."""

from queries.domain.supervision.health.watermarks import after_9999


def source(column: str) -> dict[str, object]:
    return {"name": "events", "watermark": {"column": column, "delay": "10 minutes"}}


def test_the_column_of_the_watermark_is_named_with_the_way_out() -> None:
    said = after_9999({"sources": [{"name": "other"}, source("ts")]})
    assert "after the year 9999" in said
    assert "the column ts holds milliseconds" in said
    assert "timestamp_millis(ts)" in said


def test_several_columns_or_none_are_said() -> None:
    assert "the column ts or at holds" in after_9999({"sources": [source("ts"), source("at")]})
    assert "its event-time column holds" in after_9999({"kind": "python"})
    assert "its event-time column holds" in after_9999({"sources": ["odd"]})
