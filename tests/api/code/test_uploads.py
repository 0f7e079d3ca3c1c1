"""Code is uploaded as a tar, kept by its content, and refused whole where anything is wrong."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from queries.code_roots import digest_of, files_of
from queries.domain.definitions.spec import ApplicationSpec
from queries.models.access.audit import AuditEntry
from queries.models.applications import UploadedCode
from queries.selectors.code import roots_of
from queries.services.code.preparing import prune_contents
from queries.services.scripts import script_job
from tests.api.faults import check_told, definitions
from tests.scenarios.stage import Stage
from tests.services.code.archives import BAD, member, packed, tar_of, zip_of, zipped

pytestmark = pytest.mark.django_db

CODE = "/api/v1/code/"
FILES = {"job.py": "def build(spark, params): ...\n", "shared/times.py": "ZONE = 'UTC'\n"}


@pytest.fixture(autouse=True)
def kept(settings: Settings, tmp_path: Path) -> Path:
    """Return the folder that uploads go into; what other tests have left is not pruned here."""
    settings.CODE_DIR, settings.PACKAGES_DIR = tmp_path / "code", tmp_path / "packages"
    return tmp_path / "code"


def upload(client: APIClient, data: bytes, kind: str = "application/x-tar") -> Any:
    """Send an archive as its own body."""
    return client.generic("POST", CODE, data, content_type=kind)  # type: ignore[arg-type]


def _tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_an_upload_is_kept_by_its_content_and_the_same_again_answers_200(
    as_author: APIClient, kept: Path
) -> None:
    made = upload(as_author, packed(FILES))
    assert made.status_code == 201
    body = made.json()
    assert (body["files"], body["bytes"]) == (2, sum(map(len, FILES.values())))
    assert body["uploaded_by"] == "aude"
    assert as_author.get(made["Location"]).json() == body
    assert [one["digest"] for one in as_author.get(CODE).json()["results"]] == [body["digest"]]
    # Another order, owner, time and packing: the same names and contents.
    other = tar_of(
        *(
            member(f"./{name}", text, mtime=9, uid=7, mode=0o777)
            for name, text in reversed(FILES.items())
        )
    )
    again = upload(as_author, zipped(other), "application/gzip")
    assert (again.status_code, again.json()["digest"]) == (200, body["digest"])
    assert [entry.kind for entry in AuditEntry.objects.filter(subject=body["digest"])] == [
        "code-uploaded",
        "code-uploaded",
    ]


def test_the_same_files_have_the_same_digest_in_a_tar_a_zip_and_a_wheel(
    as_author: APIClient, kept: Path
) -> None:
    body = upload(as_author, packed(FILES)).json()
    assert body["paths"] == ["job.py", "shared/times.py"]
    assert as_author.get(f"{CODE}{body['digest']}/").json()["paths"] == body["paths"]
    more = [("shared/", ""), ("__pycache__/job.pyc", "x"), *reversed(FILES.items())]
    for kind in ("application/zip", "application/x-zip-compressed"):
        again = upload(as_author, zip_of(*more), kind)
        assert (again.status_code, again.json()["digest"]) == (200, body["digest"])
    assert oct((kept / body["digest"][7:] / "0" / "job.py").stat().st_mode & 0o7777) == "0o600"


def test_one_python_file_is_code_under_its_name(as_author: APIClient) -> None:
    text = FILES["job.py"].encode()
    sent: Any = text
    address, kind = f"{CODE}?name=job.py", "text/x-python"
    alone = as_author.generic("POST", address, sent, content_type=kind)
    assert (alone.status_code, alone.json()["paths"]) == (201, ["job.py"])
    packed_alone = upload(as_author, packed({"job.py": FILES["job.py"]}))
    assert packed_alone.json()["digest"] == alone.json()["digest"]


@pytest.mark.parametrize("name", ["", "job.txt", "../job.py", "a/job.py", ".py", "a%0A.py"])
def test_a_python_file_needs_a_name_of_its_own(as_author: APIClient, kept: Path, name: str) -> None:
    sent: Any = b"x = 1"
    address = f"{CODE}?name={name}"
    answer = as_author.generic("POST", address, sent, content_type="text/x-python")
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert problem["field"] in ("name", "archive")
    check_told([problem], nothing_given=not name)
    assert not kept.exists() or _tree(kept) == []


def test_an_archive_has_no_name(as_author: APIClient) -> None:
    sent: Any = packed(FILES)
    kind = "application/x-tar"
    answer = as_author.generic("POST", f"{CODE}?name=job.py", sent, content_type=kind)
    assert [one["field"] for one in answer.json()["problems"]] == ["name"]


def test_the_digest_is_what_a_run_of_it_alone_is_known_by(as_author: APIClient, kept: Path) -> None:
    digest = upload(as_author, packed(FILES)).json()["digest"].removeprefix("sha256:")
    root = kept / digest / "0"
    assert digest_of(list(files_of((str(root),)))) == digest
    assert (root / "job.py").read_text() == FILES["job.py"]


def test_what_is_kept_is_headgates_alone(as_author: APIClient, kept: Path) -> None:
    upload(as_author, tar_of(*(member(name, text, mode=0o4777) for name, text in FILES.items())))
    for path in kept.rglob("*"):
        assert path.stat().st_mode & 0o7777 == (0o700 if path.is_dir() else 0o600)


def test_caches_and_version_control_are_left_out(as_author: APIClient, kept: Path) -> None:
    more = {".git/config": "x", "__pycache__/job.pyc": "x", "shared/a.pyc": "x"}
    plain, full = upload(as_author, packed(FILES)), upload(as_author, packed(FILES | more))
    assert plain.json()["digest"] == full.json()["digest"]


@pytest.mark.guarantee("G-CODE-1")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_archive_is_refused_whole(
    as_author: APIClient, kept: Path, tmp_path: Path, name: str
) -> None:
    (make, said), before = BAD[name], definitions()
    answer = upload(as_author, make())
    assert answer.status_code == 422, answer.content
    (problem,) = answer.json()["problems"]
    assert problem["field"] == "archive"
    check_told([problem], nothing_given=name == "nothing")
    assert definitions() == before
    assert said in f"{problem['field']} {problem['value']} {problem['message']}"
    assert not kept.exists() or _tree(kept) == []
    assert {path.name for path in tmp_path.iterdir()} <= {"code"}
    assert not UploadedCode.objects.exists()
    assert not AuditEntry.objects.filter(kind="code-uploaded").exists()


@pytest.mark.guarantee("G-CODE-1")
def test_a_zip_with_a_long_list_is_not_read(as_author: APIClient) -> None:
    make, said = BAD["a zip with a list of 9 MB"]
    answer = upload(as_author, make())
    assert answer.status_code == 422
    assert said in answer.json()["problems"][0]["message"]


@pytest.mark.parametrize(
    "kind",
    ["application/json", "text/plain", "application/pdf", "multipart/form-data; boundary=x", ""],
)
def test_a_body_of_another_kind_is_refused(as_author: APIClient, kind: str) -> None:
    answer = upload(as_author, b"{}", kind)
    assert answer.status_code == 415
    assert answer.json()["way_out"]


def test_who_may_not_write_python_uploads_nothing(db: None, kept: Path) -> None:
    sam = User.objects.create_user("sam")
    sam.groups.add(Group.objects.get(name="author"))
    client = APIClient()
    client.force_authenticate(sam)
    answer = upload(client, packed(FILES))
    assert answer.status_code == 403
    assert "Python" in answer.json()["detail"]
    assert not kept.exists()


def test_an_operator_uploads_nothing(as_operator: APIClient, kept: Path) -> None:
    assert upload(as_operator, packed(FILES)).status_code == 403
    assert not kept.exists()


def test_a_full_disk_leaves_nothing_half_stored(
    as_author: APIClient, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("queries.services.code.uploads.shutil.copyfileobj", no_room)
    assert upload(as_author, packed(FILES)).status_code >= 500
    assert _tree(kept) == []
    assert not UploadedCode.objects.exists()


def test_an_upload_that_no_revision_names_is_deleted_after_some_days(
    as_author: APIClient, kept: Path, stage: Stage, settings: Settings
) -> None:
    named = upload(as_author, packed(FILES)).json()["digest"]
    unused = upload(as_author, packed({"old.py": "x = 1\n"})).json()["digest"]
    stage.application("flights", code={"upload": named})
    soon = timezone.now() + timedelta(days=settings.CODE_DAYS - 1)
    assert prune_contents(now=soon) == 0
    later = timezone.now() + timedelta(days=settings.CODE_DAYS + 1)
    assert prune_contents(now=later) == 2  # what REST lists, and the files
    assert [row.digest for row in UploadedCode.objects.all()] == [named]
    assert (kept / named.removeprefix("sha256:") / "0" / "job.py").is_file()
    assert not (kept / unused.removeprefix("sha256:")).exists()


def test_an_upload_that_somebody_sends_again_is_as_good_as_new(
    as_author: APIClient, settings: Settings
) -> None:
    digest = upload(as_author, packed(FILES)).json()["digest"]
    old = timezone.now() - timedelta(days=settings.CODE_DAYS + 1)
    UploadedCode.objects.update(uploaded_at=old)
    upload(as_author, packed(FILES))
    assert prune_contents(now=timezone.now()) == 0
    assert UploadedCode.objects.get().digest == digest


def test_a_digest_that_nobody_uploaded_is_missing(as_viewer: APIClient) -> None:
    for name in ("sha256:" + "0" * 64, "latest", "sha256:x"):
        assert as_viewer.get(f"{CODE}{name}/").status_code == 404


def test_a_script_and_a_function_are_found_in_uploaded_code(as_author: APIClient) -> None:
    digest = upload(as_author, packed(FILES)).json()["digest"]
    code = {"upload": digest}

    def made(name: str, **spec: Any) -> Any:
        body = {"name": name, "spec": {"code": code, **spec}}
        return as_author.post("/api/v1/applications/", body, format="json")

    assert made("one", kind="script", script={"file": "job.py"}).status_code == 201
    assert made("two", kind="script", script={"module": "shared.times"}).status_code == 201
    (missing,) = made("a", kind="script", script={"file": "gone.py"}).json()["problems"]
    assert (missing["field"], missing["value"]) == ("script.file", "gone.py")
    (missing,) = made("a", kind="script", script={"module": "gone"}).json()["problems"]
    assert "cannot be found in the application's code." in missing["message"]
    assert made("jobs").status_code == 201
    query = {"kind": "python", "function": "job:build", "sink": {"format": "noop"}}
    body = {"name": "q", "application": "jobs", "spec": query}
    assert as_author.post("/api/v1/queries/", body, format="json").status_code == 201
    body = {"name": "r", "application": "jobs", "spec": {**query, "function": "job:gone"}}
    (missing,) = as_author.post("/api/v1/queries/", body, format="json").json()["problems"]
    assert "job.py contains no function gone" in missing["message"]


def test_the_driver_is_told_the_file_in_the_copy_of_its_code(
    as_author: APIClient, stage: Stage, kept: Path
) -> None:
    digest = upload(as_author, packed(FILES)).json()["digest"]
    spec = ApplicationSpec.model_validate(
        {"kind": "script", "script": {"file": "shared/times.py"}, "code": {"upload": digest}}
    )
    application = stage.application("jobs", **spec.model_dump(mode="json"))
    roots = roots_of(spec)
    assert roots is not None
    job = script_job(application, spec, roots)
    assert job is not None
    assert job.file == str(kept / digest.removeprefix("sha256:") / "0" / "shared" / "times.py")


def test_a_draft_that_a_process_left_is_removed_and_one_that_is_at_work_is_not(
    db: None, kept: Path, settings: Settings
) -> None:
    now = timezone.now()
    for name, age in ((".draft-old", 2), (".draft-new", 0)):
        (kept / name / "0").mkdir(parents=True)
        at = (now - timedelta(days=age)).timestamp()
        os.utime(kept / name, (at, at))
    prune_contents(now=now)
    assert [path.name for path in kept.iterdir()] == [".draft-new"]


# --- sent again ---------------------------------------------------------------------------
def under_key(client: APIClient, data: bytes) -> Any:
    """Send an archive under the key “one”."""
    kind = "application/x-tar"
    sent: Any = data
    return client.generic("POST", CODE, sent, content_type=kind, HTTP_IDEMPOTENCY_KEY="one")


def test_another_archive_under_the_same_key_is_a_conflict(as_author: APIClient) -> None:
    first = under_key(as_author, packed(FILES))
    again = under_key(as_author, packed(FILES))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again["Idempotency-Replayed"] == "true"
    other = under_key(as_author, packed({"job.py": "another = True\n"}))
    assert other.status_code == 409
    assert "new key" in other.json()["way_out"]
    assert UploadedCode.objects.count() == 1


def test_an_archive_under_a_key_is_bounded_too(as_author: APIClient, settings: Settings) -> None:
    settings.CODE_UPLOAD_MOST_BYTES = 20_000
    answer = under_key(as_author, packed({"job.py": "x" * 30_000}))
    assert (answer.status_code, UploadedCode.objects.count()) == (413, 0)
    assert "20,000 bytes" in answer.json()["detail"]
    assert under_key(as_author, packed({"job.py": "x"})).status_code == 201
