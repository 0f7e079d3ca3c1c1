"""Write a number with its noun."""


def counted(count: int, noun: str) -> str:
    """Return "1 query" or "3 queries" for "query,queries"; "1 run" or "2 runs" for "run"."""
    one, _, many = noun.partition(",")
    return f"{count:,} {one if count == 1 else (many or one + 's')}"
