"""Compute ranges of integers: the numbers that have arrived, and the holes between them."""

from collections.abc import Iterable

Range = tuple[int, int]  # first and last, both inclusive


def merge(ranges: Iterable[Range], numbers: Iterable[int]) -> list[Range]:
    """Return the fewest ranges that cover the given ranges and numbers, ascending."""
    merged: list[Range] = []
    for first, last in sorted([*ranges, *_runs(sorted(set(numbers)))]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _runs(ascending: list[int]) -> list[Range]:
    """Return the ranges of distinct ascending numbers; usually a single one."""
    if not ascending:
        return []
    if ascending[-1] - ascending[0] + 1 == len(ascending):
        return [(ascending[0], ascending[-1])]
    return [(number, number) for number in ascending]


def holes(
    ranges: Iterable[Range], *, first: int | None = None, last: int | None = None
) -> list[Range]:
    """Return the holes between ascending ranges, from `first` on, and up to `last` if given."""
    missing: list[Range] = []
    following = first
    for start, end in ranges:
        if following is not None and start > following:
            missing.append((following, start - 1))
        following = end + 1 if following is None else max(following, end + 1)
    if last is not None and following is not None and last >= following:
        missing.append((following, last))
    return missing


def overlap(span: Range, others: Iterable[Range]) -> int:
    """Return how many numbers of `one` are in any of `others`, which do not overlap."""
    return sum(max(0, min(span[1], last) - max(span[0], first) + 1) for first, last in others)
