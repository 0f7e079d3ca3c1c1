"""Write a number with its noun."""


def counted(count: int, noun: str) -> str:
    """Return "1 query" or "3 queries" for "query,queries"; "1 run" or "2 runs" for "run"."""
    singular, _, plural = noun.partition(",")
    return f"{count:,} {singular if count == 1 else (plural or singular + 's')}"
