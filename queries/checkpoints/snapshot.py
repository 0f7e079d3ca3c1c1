"""Copy a checkpoint as of one batch, by hard links, while a query may be writing to it.

Spark replaces files and never rewrites them, so a link is as good as a copy and takes microseconds.
Spark may also purge old files during the copy. So files of the newest versions are linked first,
files that have disappeared are not an error, and at the end, the copy is checked for everything
that Spark needs to continue from the batch. Nothing in the original is changed.
"""

import os
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headgate_ground.files import NotPlain, open_plain
from headgate_ground.tolerant import whole
from headgate_ground.untrusted import make_folder, move, remove_tree, status_of, walk
from queries.checkpoints import source_logs, state
from queries.checkpoints.inside import Inside
from queries.checkpoints.logs import CheckpointLogs, names_in, numbers_in
from queries.domain.checkpoints.logs import Offsets, UnreadableLog
from queries.domain.errors import NotAllowed

#: A live query may purge files while they are being linked; the next attempt finds newer batches.
ATTEMPTS = 3


class CannotCopy(NotAllowed):
    """The checkpoint as of the requested batch is not available."""

    code = "cannot-copy"


@dataclass(frozen=True, slots=True)
class Copied:
    """The contents of a copy."""

    batch: int  # the newest batch in it
    files: int
    bytes: int  # of all its files; shared with the original while both have them
    filled: int | None = None  # the previous batch, if async progress tracking had left it out


def snapshot(
    location: str,
    destination: Path,
    batch: int | None = None,
    keep_commit: bool = True,
    new_id: bool = False,
) -> Copied:
    """Copy the checkpoint at `location` (canonical) as of `batch` to the folder `destination`.

    `batch` must be committed; None means the newest committed one. The copy contains offsets and
    commits up to that batch, the sources' logs up to the end of its offsets, state up to the
    version that it left (batch + 1) and all operator metadata, but nothing from a batch in flight.
    With `keep_commit=False` the batch itself counts as started but not committed (no
    `commits/BATCH`, state up to version `batch`): a query started on the copy executes exactly that
    batch again. With `new_id` the copy gets its own ID; otherwise, if both ran in one driver, Spark
    would stop the original.

    The copy is built next to the destination in `DESTINATION.building-…`, checked, synced to disk,
    and renamed; leftovers of an interrupted attempt are removed first. An existing `destination` is
    never replaced: that raises OSError. If files cannot be linked between the two folders, they are
    copied. Raises `NotLocal` for a non-local location, and `CannotCopy` if the batch, the previous
    batch, or its state is not (or no longer) available. The copy is safe while the query is
    running.
    """
    logs = CheckpointLogs.at(location)
    for attempt in range(ATTEMPTS):
        try:
            with building(destination, logs.root) as draft:
                copied = _Copy(logs, draft, keep_commit).of(batch)
                if new_id:
                    _write_id(draft, str(uuid.uuid4()))
            return copied
        except NotPlain as error:  # a driver has put something else in its place
            raise CannotCopy(f"The checkpoint {logs.root} cannot be copied: {error}") from error
        except CannotCopy:
            # Purged in the meantime: by now, a live query's newest batch is a different one.
            if batch is not None or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def twin(copy: Path, destination: Path) -> None:
    """Link a copy of a checkpoint to a second folder, with its own ID."""
    with building(destination, copy) as draft:
        for folder, _, names, _ in walk(copy):
            for name in names:
                path = folder / name
                source = open_plain(path, within=copy)
                try:
                    draft.link(source, str(path.relative_to(copy)))
                finally:
                    os.close(source)
        _write_id(draft, str(uuid.uuid4()))


def _write_id(checkpoint: Inside, identity: str) -> None:
    """Write the ID by which Spark identifies the query to a copy of a checkpoint."""
    # A new file, because the old one may be a link to the original's.
    for old_file in ("metadata", ".metadata.crc"):
        with suppress(FileNotFoundError):
            checkpoint.remove(old_file)
    checkpoint.write("metadata", f'{{"id":"{identity}"}}')


def remove(location: Path) -> None:
    """Remove a copy and leftovers of an interrupted attempt to create it, moving them aside first.

    Missing files are not an error, so this can be repeated until it has finished.
    """
    with suppress(FileNotFoundError):
        move(location, location.with_name(f"{location.name}.removing-{uuid.uuid4().hex[:8]}"))
    remove_left_over(location)


@contextmanager
def building(destination: Path, like: Path) -> Iterator[Inside]:
    """Yield an empty folder next to `destination`; on exit, sync and rename it to `destination`.

    The new folder gets the mode and owner of the folder `like`, and is removed if the block raises
    an error; leftovers of a killed attempt are removed first. Raises OSError if `destination`
    exists.
    """
    remove_left_over(destination)
    draft = destination.with_name(f"{destination.name}.building-{uuid.uuid4().hex[:8]}")
    try:
        with Inside(destination.parent) as outer, _drafted(draft) as within:
            yield within
            os.fchmod(within.folder(""), status_of(like).st_mode & 0o777)
            sync_tree(draft)
            outer.rename(draft.name, destination.name)
            os.fsync(outer.folder(""))
    finally:
        remove_tree(draft)


def _drafted(draft: Path) -> Inside:
    descriptor = make_folder(draft)
    try:
        return Inside(draft, descriptor)
    finally:
        os.close(descriptor)


def remove_left_over(destination: Path) -> None:
    """Remove drafts and partly removed copies of a folder."""
    for name in names_in(destination.parent):
        if name.startswith((f"{destination.name}.building-", f"{destination.name}.removing-")):
            remove_tree(destination.parent / name)


class _Copy:
    """One attempt at a copy: files are linked, the newest first; then the copy is checked."""

    def __init__(self, logs: CheckpointLogs, to: Inside, keep_commit: bool) -> None:
        self._logs = logs
        self._from = logs.root
        self._within = to
        self._to = to.root  # only for reading
        self._keep_commit = keep_commit
        self._files = 0
        self._bytes = 0

    def of(self, wanted_batch: int | None) -> Copied:
        batch, offsets = self._batch(wanted_batch)
        for n in reversed([n for n in self._logs.begun() if n <= batch]):
            self._link(f"offsets/{n}")
        last_commit = batch if self._keep_commit else batch - 1
        for n in reversed([n for n in self._logs.committed() if n <= last_commit]):
            self._link(f"commits/{n}")
        self._sources(offsets)
        self._state(batch + 1 if self._keep_commit else batch, batch)
        self._link("metadata")
        filled = self._before(batch)
        self._check(batch, offsets)
        return Copied(batch, self._files, self._bytes, filled)

    def _batch(self, wanted_batch: int | None) -> tuple[int, Offsets]:
        batch = self._logs.last_commit() if wanted_batch is None else wanted_batch
        if batch is None:
            raise CannotCopy(
                f"No batch has committed in {self._from}.",
                way_out="Wait until the query has committed a batch.",
            )
        if batch not in self._logs.committed():
            raise CannotCopy(
                f"Batch {batch} is not committed in {self._from}.", way_out=_reach(self._logs)
            )
        try:
            offsets = self._logs.offsets(batch)
        except UnreadableLog as error:
            raise CannotCopy(f"offsets/{batch} cannot be read: {error}") from error
        if offsets is None:
            raise CannotCopy(
                f"The offsets of batch {batch} are missing from {self._from}.",
                way_out=_reach(self._logs),
            )
        return batch, offsets

    # --- the parts ----------------------------------------------------------------------

    def _sources(self, offsets: Offsets) -> None:
        for source, end in offsets.sources.items():
            folder = self._from / "sources" / source
            for name in source_logs.names_up_to(folder, names_in(folder), end):
                self._link(f"sources/{source}/{name}")

    def _state(self, upto: int, batch: int) -> None:
        """Link every store's versions up to one, newest first, then the files that zips list."""
        for folder, folders, names, _ in walk(self._from / "state"):
            folders[:] = [name for name in folders if not name.startswith(".")]
            within = folder.relative_to(self._from)
            if within.name == state.SSTS:
                continue  # handled by name, from the kept zips
            if any(part.startswith("_") for part in within.parts):
                # `_metadata/v2/N` is written by the first batch of a run; exclude those of later
                # batches.
                described_names = [name for name in names if (whole(name) or 0) <= batch]
                self._link_all(within, described_names)
            elif files := [(file, name) for name in names if (file := state.parse(name))]:
                mine = [(file.version, name) for file, name in files if file.version <= upto]
                self._link_all(within, [name for _, name in sorted(mine, reverse=True)])
                self._ssts(within)
            else:
                self._link_all(within, names)

    def _ssts(self, store: Path) -> None:
        """Link the SST files for each linked zip; remove zips whose files have been purged."""
        linked = self._to / store
        for name in sorted(names_in(linked), key=_newest_first):
            if not name.endswith(".zip"):
                continue
            try:
                needed = state.sst_files(linked / name)
            except (OSError, zipfile.BadZipFile, ValueError, KeyError) as error:
                raise CannotCopy(f"{store}/{name} cannot be read: {error}") from error
            copied = [self._link(f"{store}/{state.SSTS}/{sst}") for sst in sorted(needed)]
            if not all(copied):
                self._drop(store, name)

    def _before(self, batch: int) -> int | None:
        """Fill the gap that async progress tracking leaves below the newest batch.

        When Spark starts, it reads the batch before the newest. If the newest batch is committed, a
        copy of its offsets fills the gap, so that nothing is read twice; otherwise, a copy of the
        last batch in the log fills it.
        """
        missing = self._to / "offsets" / str(batch - 1)
        if batch == 0 or self._within.has(f"offsets/{batch - 1}"):
            return None
        older = [n for n in numbers_in(missing.parent) if n < batch]
        if not older:
            raise CannotCopy(
                f"The query cannot continue from batch {batch}: offsets/{batch - 1} has been "
                "purged.",
                way_out=_reach(self._logs),
            )
        stands_in = batch if self._keep_commit else max(older)
        source = open_plain(missing.with_name(str(stands_in)), within=self._to)
        try:
            self._within.copy(source, f"offsets/{batch - 1}")
        finally:
            os.close(source)
        return batch - 1

    # --- the check ----------------------------------------------------------------------

    def _check(self, batch: int, offsets: Offsets) -> None:
        wanted = ["metadata", f"offsets/{batch}"]
        wanted += [f"commits/{batch}"] if self._keep_commit else []
        absent_names = [name for name in wanted if not self._within.has(name)]
        if absent_names:
            raise CannotCopy(
                f"{', '.join(absent_names)} disappeared while the checkpoint was copied."
            )
        for source, end in offsets.sources.items():
            upto = source_logs.log_offset(end)
            folder = self._to / "sources" / source
            if upto is not None and not source_logs.is_whole(folder, upto):
                raise CannotCopy(f"The log of source {source} is incomplete up to entry {upto}.")
        version = batch + 1 if self._keep_commit else batch
        for folder, _ in state.stores(self._from / "state"):
            within = folder.relative_to(self._from)
            missing = state.missing_version(names_in(self._to / within), version)
            if missing is not None:
                raise CannotCopy(
                    f"The state after batch {version - 1} cannot be loaded: version {missing} "
                    f"of {within} is missing.",
                    way_out="Choose a later batch; Spark purges older ones.",
                )

    # --- files --------------------------------------------------------------------------

    def _link_all(self, within: Path, names: list[str]) -> None:
        for name in names:
            if not name.startswith("."):
                self._link(f"{within}/{name}")

    def _link(self, name: str) -> bool:
        """Link one file; False if it is gone, which is normal."""
        if self._within.has(name):
            return True
        try:
            # Link what was opened, not what the name refers to by then, since a driver writes
            # there.
            source = open_plain(self._from / name, within=self._from)
        except (FileNotFoundError, NotPlain):
            return False
        try:
            self._within.link(source, name)
        except FileNotFoundError:
            return False
        finally:
            os.close(source)
        self._files += 1
        self._bytes += self._within.size(name)
        return True

    def _drop(self, store: Path, name: str) -> None:
        for file in (f"{store}/{name}", f"{store}/{name}.crc"):
            with suppress(FileNotFoundError):
                self._bytes -= self._within.size(file)
                self._files -= 1
                self._within.remove(file)


def sync_tree(root: Path) -> None:
    """Wait until every file and folder under `root` is on disk."""
    for folder, _, names, descriptor in walk(root):
        for name in names:
            file = open_plain(folder / name, within=root)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        os.fsync(descriptor)


def _newest_first(name: str) -> tuple[int, str]:
    file = state.parse(name)
    return (-file.version if file else 0, name)


def _reach(logs: CheckpointLogs) -> str:
    """Return a sentence about the batches that the checkpoint contains."""
    committed = logs.committed()
    if not committed:
        return "No batch has committed yet."
    return f"The checkpoint contains batches {committed[0]} to {committed[-1]}."
