"""Which members of a tar may become files: names, kinds and sizes, judged before a byte is written.

Plain files and folders below the archive's own folder, each once, and not more of them than a
driver's code may have.
"""

from dataclasses import dataclass, field

from queries.domain.errors import Invalid, Problem

#: The field that every problem of an archive is told at.
FIELD = "archive"
#: Of a name, in bytes: what Linux takes for a part, and well below what it takes for a path.
LONGEST_PART, LONGEST_NAME = 255, 1000
DEEPEST = 40
#: Members that are looked at, at most, for each file that there may be: folders and what is left
#: out count too.
MEMBERS_PER_FILE = 4

_PACK = "Pack plain files and folders only."


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of a tar, as its header says."""

    name: str
    kind: str  # "file" | "folder" | what else it is, as a noun: "a symbolic link"
    size: int = 0


def problem(value: str, message: str, way_out: str) -> Invalid:
    """Return the one fault of an archive as an error to raise."""
    return Invalid([Problem(FIELD, shown(value), message, way_out)])


def shown(name: str) -> str:
    """Return a name from an archive as text that every database and page takes."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return plain.encode("utf-8", "replace").decode()[:200]


@dataclass(slots=True)
class Judge:
    """Judges the members of one archive, one after the other."""

    most_bytes: int
    most_files: int
    files: int = 0
    bytes: int = 0
    _members: int = 0
    _taken: set[str] = field(default_factory=set)
    _folders: set[str] = field(default_factory=set)

    def judge(self, member: Member) -> str:
        """Return where a member belongs, as a path below the folder; "" for the folder itself.

        Raises `Invalid` with the fault of one that may not become a file.
        """
        self._members += 1
        if self._members > MEMBERS_PER_FILE * self.most_files:
            raise self._too_many()
        parts = _parts(member.name)
        if member.kind not in ("file", "folder"):
            raise problem(member.name, f"is {member.kind}.", _PACK)
        path = "/".join(parts)
        if member.kind == "folder":
            self._enter(parts)
            return path
        if not parts:
            raise problem(member.name, "has no name.", _PACK)
        if path in self._taken:
            raise problem(path, "is there twice.", "Pack each file once.")
        if path in self._folders:
            raise problem(path, "is a file and a folder.", "Pack each name once.")
        self._enter(parts[:-1])
        self._taken.add(path)
        self._count(member)
        return path

    def _enter(self, parts: tuple[str, ...]) -> None:
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder in self._taken:
                raise problem(folder, "is a file and a folder.", "Pack each name once.")
            self._folders.add(folder)

    def _count(self, member: Member) -> None:
        self.files += 1
        self.bytes += member.size
        if self.files > self.most_files:
            raise self._too_many()
        if self.bytes > self.most_bytes:
            raise problem(
                f"{self.bytes:,} bytes",
                f"is more than the {self.most_bytes:,} bytes that code may have unpacked.",
                "Leave data out, or pack a smaller folder.",
            )

    def _too_many(self) -> Invalid:
        return problem(
            f"{self.files:,} files",
            f"is more than the {self.most_files:,} files that code may have.",
            "Leave data and installed packages out, or pack a smaller folder.",
        )


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a member's name; raise `Invalid` for one that may lead elsewhere."""
    if name.startswith("/"):
        raise problem(name, "begins with /.", "Pack names relative to the folder of the code.")
    try:
        long = len(name.encode()) > LONGEST_NAME
    except UnicodeEncodeError as error:
        raise problem(name, "is not a name in UTF-8.", "Rename the file.") from error
    if any(not c.isprintable() for c in name):
        raise problem(name, "contains a control character.", "Rename the file.")
    if "\\" in name:
        raise problem(name, "contains a backslash.", "Separate folders by /.")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise problem(name, "leads out of the folder.", "Pack names without “..”.")
    if long or len(parts) > DEEPEST or any(len(part.encode()) > LONGEST_PART for part in parts):
        raise problem(name, "is too long.", "Shorten the names of the file and its folders.")
    return parts
