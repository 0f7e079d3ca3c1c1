"""Sinks of Spark's by what becomes of their rows: one list for each, whoever asks."""

#: Whose rows are stored nowhere.
UNKEPT = frozenset({"noop", "console", "memory"})
#: Which list no batches of their own: continuous processing and async progress tracking take none
#: that does.
UNLISTED = UNKEPT | {"kafka"}
