"""Code is uploaded on the form of an application: dropped or chosen, as folder, zip or module."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from queries.models.applications import Application, UploadedCode
from queries.services.code.uploads import unpack
from tests.browser.conftest import sign_in
from tests.services.code.archives import packed

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure

LONG = "deep/" * 25 + "ä.py"  # more than a header of a tar can name
FILES = {"job.py": "x = 1\n", "shared/times.py": "ZONE = 'UTC'\n", LONG: ""}


@pytest.fixture
def kept(settings: Settings, tmp_path: Path) -> Path:
    """Return the folder that uploads go into."""
    settings.CODE_DIR = tmp_path / "kept"
    return tmp_path / "kept"


@pytest.fixture
def form(
    page: Page,
    context: BrowserContext,
    live_server: LiveServer,
    author: User,
    kept: Path,  # set before the page is open
) -> Page:
    sign_in(context, live_server.url, author)
    page.goto(f"{live_server.url}/new/application/")
    page.wait_for_load_state()
    return page


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs"
    for name, text in {**FILES, "__pycache__/job.pyc": "x", ".git/config": "x"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with zipfile.ZipFile(tmp_path / "jobs.zip", "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    return folder


def _digest(files: dict[str, str]) -> str:
    return "sha256:" + unpack(io.BytesIO(packed(files))).sha256


def _choose(page: Page, button: str, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=button).press("Enter")
    chooser.value.set_files(path)


def _drop(page: Page, *paths: Path) -> None:
    """Drop files and folders of this machine, as a person's desktop does."""
    page.locator("[data-drop]").scroll_into_view_if_needed()
    box = page.locator("[data-drop]").bounding_box()
    assert box is not None
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    devtools = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        at = {"x": box["x"] + 20, "y": box["y"] + 10}
        devtools.send("Input.dispatchDragEvent", {"type": kind, **at, "data": data})


def test_a_folder_a_zip_and_a_module_are_uploaded_and_the_form_is_saved(
    form: Page, folder: Path
) -> None:
    digest, alone = _digest(FILES), _digest({"job.py": FILES["job.py"]})
    field = form.get_by_label("Uploaded code")
    said = form.locator("[data-code-upload] [role=status]")
    form.get_by_label("Runs", exact=True).select_option("script")
    ways: list[Callable[[], None]] = [
        lambda: _choose(form, "Choose files", folder.with_suffix(".zip")),
        lambda: _choose(form, "Choose a folder", folder),
        lambda: _drop(form, folder),
        lambda: _drop(form, folder.with_suffix(".zip")),
        lambda: _drop(form, *(folder / name for name in ("job.py", "shared", "deep"))),
    ]
    for put in ways:
        put()
        expect(said).to_contain_text("Uploaded: 3 files, 19 bytes: job.py, deep/")
        expect(field).to_have_value(digest)
        field.fill("")
        field.blur()
        expect(said).to_have_text("")
    _choose(form, "Choose files", folder / "job.py")
    expect(field).to_have_value(alone)
    expect(said).to_contain_text("1 file, 6 bytes: job.py.")
    expect(form.get_by_label("File", exact=True)).to_have_value("job.py")
    _drop(form, folder)
    expect(field).to_have_value(digest)
    form.get_by_label("Entry file").select_option("shared/times.py")
    form.get_by_label("Name").fill("jobs")
    form.get_by_role("button", name="Create").click()
    form.wait_for_url("**/applications/jobs/")
    spec = Application.objects.get(name="jobs").revisions.get().spec
    assert spec["code"]["upload"] == digest
    assert spec["script"]["file"] == "shared/times.py"
    form.goto(form.url + "edit/")
    expect(said).to_contain_text("Contains 3 files")


def test_what_is_refused_is_said_in_words_and_changes_nothing(
    form: Page, folder: Path, tmp_path: Path
) -> None:
    wrong = form.locator("[data-code-upload] [role=alert]")
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("../escape.py", "x")
    _drop(form, bad)
    expect(wrong).to_contain_text("“../escape.py” points outside the folder. Use names without")
    _drop(form, folder / "shared")
    expect(wrong).not_to_contain_text("escape")
    expect(form.get_by_label("Uploaded code")).to_have_value(
        _digest({"times.py": "ZONE = 'UTC'\n"})
    )
    (tmp_path / "empty" / "__pycache__").mkdir(parents=True)
    _drop(form, tmp_path / "empty")
    expect(wrong).to_contain_text("contains no code files")
    (tmp_path / "large.whl").write_bytes(b"\0" * (settings.CODE_UPLOAD_MOST_BYTES + 1))
    _drop(form, tmp_path / "large.whl")
    expect(wrong).to_contain_text("is more than the 64.0 MiB that an upload may have")
    (tmp_path / "notes.txt").write_text("x")
    _drop(form, tmp_path / "notes.txt")
    expect(wrong).to_contain_text("“notes.txt” cannot be uploaded")
    User.objects.get(username="aude").groups.clear()
    _drop(form, folder)
    expect(wrong).to_contain_text("Ask an admin for the required role")
    assert UploadedCode.objects.count() == 1
    expect(form.get_by_label("Uploaded code")).to_have_value(
        _digest({"times.py": "ZONE = 'UTC'\n"})
    )
