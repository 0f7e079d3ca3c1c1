"""`make screenshots` takes exactly the images that the README and the docs show."""

import re
import sys
from pathlib import Path

import pytest
from django.conf import settings

REPOSITORY = Path(settings.BASE_DIR)
sys.path.append(str(REPOSITORY / "bootstrap"))

import screenshots  # noqa: E402

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def test_each_image_on_a_page_is_taken_and_each_image_taken_is_on_a_page() -> None:
    shown = {
        name
        for page in PAGES
        for name in re.findall(r"images/([\w-]+)\.(?:png|jpe?g|svg|webp)", page.read_text())
    }
    assert {name.removesuffix("-dark") for name in shown} == set(screenshots.SHOTS)


def test_each_image_has_a_light_and_a_dark_file_of_its_own() -> None:
    suffixes = list(screenshots.THEMES.values())
    assert list(screenshots.THEMES) == ["light", "dark"]
    files = [f"{name}{suffix}" for name in screenshots.SHOTS for suffix in suffixes]
    assert len(set(files)) == len(files)


def test_without_a_browser_nothing_is_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screenshots, "missing_browser", lambda: "get it with apt-get")
    with pytest.raises(SystemExit):
        screenshots.main([])
    assert "get it with apt-get" in capsys.readouterr().err
