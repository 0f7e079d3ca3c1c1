"""Archives of code as people and attackers pack them."""

import gzip
import io
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

Files = Mapping[str, bytes | str]


def member(name: str, content: bytes | str = b"", **header: Any) -> tuple[tarfile.TarInfo, bytes]:
    """Return one entry of a tar; `header` are attributes of its header."""
    data = content.encode() if isinstance(content, str) else content
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in header.items():
        setattr(info, key, value)
    return info, data


def tar_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar of these entries, whatever their headers claim."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def packed(files: Files) -> bytes:
    """Return a tar of files by name."""
    return tar_of(*(member(name, content) for name, content in files.items()))


def zipped(data: bytes) -> bytes:
    """Return data by gzip, the same each time."""
    return gzip.compress(data, mtime=0)


_OK = member("job.py", "def build(spark, params): ...\n")


def _link(kind: bytes, name: str = "link.py", to: str = "job.py") -> bytes:
    return tar_of(_OK, member(name, type=kind, linkname=to))


def _damaged() -> bytes:
    data = bytearray(packed({"job.py": "x = 1\n"}))
    data[148:156] = b"0000000\0"  # the checksum of the header
    return bytes(data)


def _huge_size() -> bytes:
    info, _ = member("job.py")
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[124:136] = b"\x80" + (2**80).to_bytes(11, "big")
    return _checked(head) + b"\0" * 1024


def _negative_size() -> bytes:
    info, _ = member("job.py")
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[124:136] = b"\xff" * 10 + b"\xfe\x00"
    return _checked(head) + b"\0" * 1024


def _checked(head: bytearray) -> bytes:
    """Return a header with the checksum that belongs to it."""
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def _nested_headers() -> bytes:
    """Return thousands of long names that are each the name of the next."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 5
    one = info.tobuf(tarfile.GNU_FORMAT) + b"a.py\0".ljust(512, b"\0")
    return one * 5000 + packed({"job.py": "x"})


def _sparse() -> bytes:
    head = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**40)}
    info, data = member("job.py", "0\n".ljust(512, "\0"))
    info.pax_headers = head
    return tar_of((info, data))


def _bomb() -> bytes:
    return zipped(tar_of(member("zeros.bin", b"\0" * (60 * 1024 * 1024))))


def _bomb_left_out() -> bytes:
    """Return a bomb in a folder that is left out: it is bounded all the same."""
    return zipped(tar_of(member(".git/zeros", b"\0" * (60 * 1024 * 1024)), _OK))


def _trailing_bomb() -> bytes:
    return zipped(packed({"job.py": "x"}) + b"\0" * (120 * 1024 * 1024))


def zip_of(
    *files: tuple[str, bytes | str], mode: int = 0o100644, method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """Return a zip of these files, each with a mode as a Unix writes it."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")  # a name that is appears twice
        for name, content in files:
            info = zipfile.ZipInfo(name)
            info.filename = name  # as it is: Python would mend it
            info.external_attr, info.compress_type = mode << 16, method
            archive.writestr(info, content)
    return out.getvalue()


def _zip_before_itself() -> bytes:
    data = bytearray(zip_of(("a.py", "x")))
    data[-6:-2] = (len(data) + 5).to_bytes(4, "little")  # where its list begins
    return bytes(data)


def _long_list() -> bytes:
    """Return a zip whose list of members is long: each has a comment of 60 kB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(160):
            info = zipfile.ZipInfo(f"f{number}.py")
            info.comment = b"c" * 60_000
            archive.writestr(info, "")
    return out.getvalue()


def _encrypted() -> bytes:
    data = bytearray(zip_of(("a.py", "x")))
    for head, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(head) + flags] |= 1
    return bytes(data)


def _understated() -> bytes:
    """Return a zip that says that a megabyte of zeros is one byte."""
    data = bytearray(zip_of(("a.py", b"\0" * 1_000_000)))
    for head, size in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(head) + size
        data[at : at + 4] = (1).to_bytes(4, "little")
    return bytes(data)


#: name -> (archive, a part of what is said). Each is refused, and leaves nothing behind.
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "empty"),
    "no tar": (lambda: b"hello, this is no tar at all", "cannot be read"),
    "no zip": (lambda: b"PK\x03\x04" + b"\0" * 600, "cannot be read"),
    "a zip without files": (lambda: zip_of(), "contains no code files"),
    "a zip cut off": (lambda: zip_of(("a.py", "x" * 9000))[:-30], "cannot be read"),
    "a zip with a wrong sum": (
        lambda: zip_of(("a.py", "sum"), method=zipfile.ZIP_STORED).replace(b"sum", b"mus"),
        "cannot be read",
    ),
    "a zip that names a place before it": (_zip_before_itself, "cannot be read"),
    "a zip with a list of 9 MB": (_long_list, "file list is longer"),
    "a zip with an absolute name": (lambda: zip_of(("/etc/x.py", "x")), "starts with /"),
    "a zip with a way out": (lambda: zip_of(("a/../../x.py", "x")), "points outside"),
    "a zip with a backslash": (lambda: zip_of(("a\\b.py", "x")), "backslash"),
    "a zip with a NUL in a name": (
        lambda: zip_of(("a_.py", "x")).replace(b"a_.py", b"a\0.py"),
        "control character",
    ),
    "a zip with a file twice": (lambda: zip_of(("a.py", "x"), ("./a.py", "y")), "appears twice"),
    "a zip with a link": (lambda: zip_of(("a.py", "/etc/passwd"), mode=0o120777), "symbolic link"),
    "a zip with a pipe": (lambda: zip_of(("a.py", ""), mode=0o010600), "no plain file"),
    "an encrypted zip": (_encrypted, "is encrypted"),
    "a zip by lzma": (
        lambda: zip_of(("a.py", "x" * 99), method=zipfile.ZIP_LZMA),
        "unsupported compression",
    ),
    "a zip by bzip2": (
        lambda: zip_of(("a.py", "x" * 99), method=zipfile.ZIP_BZIP2),
        "unsupported compression",
    ),
    "a zip of 60 MB of zeros": (
        lambda: zip_of(("zeros", b"\0" * (60 * 1024 * 1024))),
        "bytes for unpacked code",
    ),
    "a zip that claims less than it holds": (_understated, "archive"),
    "a zip of 5,001 files": (
        lambda: zip_of(*((f"f{n}.py", "") for n in range(5001))),
        "5,000 files",
    ),
    "a tar without files": (lambda: tar_of(), "contains no code files"),
    "only plain files and folders": (
        lambda: tar_of(member("src", type=tarfile.DIRTYPE)),
        "contains no code files",
    ),
    "caches only": (
        lambda: packed({"__pycache__/a.pyc": "x", "b.pyc": "y"}),
        "contains no code files",
    ),
    "gzip of nothing": (lambda: zipped(b""), "cannot be read"),
    "gzip of no tar": (lambda: zipped(b"hello" * 300), "cannot be read"),
    "gzip cut off": (lambda: zipped(packed({"a.py": "x" * 9000}))[:-20], "cannot be read"),
    "gzip with a wrong sum": (
        lambda: zipped(packed({"a.py": "x"}))[:-8] + b"\0" * 8,
        "cannot be read",
    ),
    "gzip twice": (lambda: zipped(zipped(packed({"a.py": "x"}))), "cannot be read"),
    "cut off in a file": (lambda: packed({"a.py": "x" * 9000})[:2048], "cannot be read"),
    "cut off between files": (lambda: packed({"a.py": "x", "b.py": "y"})[:1024], "is truncated"),
    "something after its end": (lambda: packed({"a.py": "x"}) + b"more", "trailing data"),
    "a damaged header": (_damaged, "cannot be read"),
    "a size of 2^80": (_huge_size, "archive"),
    "a size below zero": (_negative_size, "archive"),
    "thousands of long names": (_nested_headers, "archive"),
    "an absolute name": (lambda: packed({"/etc/cron.d/x": "x"}), "starts with /"),
    "a way out": (lambda: packed({"../escape.py": "x"}), "points outside"),
    "a way out in the middle": (lambda: packed({"a/../../escape.py": "x"}), "points outside"),
    "a way out at the end": (lambda: packed({"a/..": "x"}), "points outside"),
    "a folder that points outside": (
        lambda: tar_of(_OK, member("../x", type=tarfile.DIRTYPE)),
        "points outside",
    ),
    "a way out left out": (lambda: packed({"../.git/x": "x"}), "points outside"),
    "a symbolic link": (lambda: _link(tarfile.SYMTYPE), "a symbolic link"),
    "a symbolic link out": (lambda: _link(tarfile.SYMTYPE, to="/etc/passwd"), "a symbolic link"),
    "a link as a folder, then a file in it": (
        lambda: tar_of(
            member("d", type=tarfile.SYMTYPE, linkname="/tmp"), member("d/escape.py", "x")
        ),
        "a symbolic link",
    ),
    "a hard link": (lambda: _link(tarfile.LNKTYPE), "a hard link"),
    "a hard link out": (lambda: _link(tarfile.LNKTYPE, to="/etc/passwd"), "a hard link"),
    "a link in a folder that is left out": (
        lambda: _link(tarfile.SYMTYPE, name=".git/link"),
        "a symbolic link",
    ),
    "a device": (lambda: _link(tarfile.CHRTYPE), "a device"),
    "a disk": (lambda: _link(tarfile.BLKTYPE), "a device"),
    "a named pipe": (lambda: _link(tarfile.FIFOTYPE), "a named pipe"),
    "a contiguous file of another kind": (lambda: _link(b"9"), "archive"),
    "a sparse file of a terabyte": (_sparse, "a sparse file"),
    "a file twice": (lambda: tar_of(_OK, _OK), "appears twice"),
    "a file twice by two names": (lambda: packed({"a.py": "x", "./a.py": "y"}), "appears twice"),
    "a file and a folder": (lambda: packed({"a": "x", "a/b.py": "y"}), "a file and a folder"),
    "a folder and a file": (lambda: packed({"a/b.py": "y", "a": "x"}), "a file and a folder"),
    "a name with a line end": (lambda: packed({"a\nb.py": "x"}), "control character"),
    "a name with a backslash": (lambda: packed({"a\\b.py": "x"}), "backslash"),
    "a name that is not UTF-8": (
        lambda: tar_of(member("a\udcff.py", "x"), form=tarfile.GNU_FORMAT),
        "not valid UTF-8",
    ),
    "a name of 300 bytes": (lambda: packed({"a" * 300: "x"}), "too long"),
    "a name in 50 folders": (lambda: packed({"a/" * 50 + "b.py": "x"}), "too long"),
    "no name": (lambda: packed({"./": "x"}), "archive"),
    "5,001 files": (lambda: packed({f"f{n}.py": "" for n in range(5001)}), "5,000 files"),
    "60 MB of zeros": (_bomb, "bytes for unpacked code"),
    "60 MB of zeros, left out": (_bomb_left_out, "bytes for unpacked code"),
    "120 MB after the end": (_trailing_bomb, "an unpacked code archive"),
}
