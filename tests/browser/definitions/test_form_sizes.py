"""Every form can be typed into, in every kind, on a laptop and on a phone."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page

from tests.browser.conftest import Open
from tests.scenarios.stage import Stage
from tests.web.pages import pages

pytestmark = pytest.mark.browser

#: Pixels below which nobody can see what is typed.
NARROWEST = 160

#: Fields of a page's main part that hold text, and where each is; those that overlap; what is wide.
MEASURE = """([narrowest, width]) => {
  const main = document.querySelector('main') || document.body;
  main.querySelectorAll('details').forEach((one) => { one.open = true; });
  const typed = ':not([type=checkbox], [type=radio], [type=hidden], [type=submit])';
  const shown = (one) => one.checkVisibility() && !one.closest('[hidden], .visually-hidden');
  const all = (selector) => [...main.querySelectorAll(selector)].filter(shown);
  const fields = all(`input${typed}, select, textarea`);
  const name = (one) => one.name || one.id || one.outerHTML.slice(0, 80);
  const box = (one) => one.getBoundingClientRect();
  const faults = [];
  for (const one of fields) {
    const at = box(one);
    const filter = one.closest('form[method=get]');
    if (at.width < narrowest && !filter) faults.push(`${name(one)} is ${at.width} px wide`);
    const outside = at.left < 0 || at.right > width;
    if (outside && !one.closest('.scroll')) faults.push(`${name(one)} ends at ${at.right} px`);
  }
  const solid = [...fields, ...all('.form-label, .radio-choice, .form-check, .field-hint')];
  solid.forEach((one, at) => {
    for (const other of solid.slice(at + 1)) {
      if (one.contains(other) || other.contains(one)) continue;
      const a = box(one), b = box(other);
      const over = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (over > 1 && down > 1) faults.push(`${name(one)} overlaps ${name(other)}`);
    }
  });
  const wide = document.documentElement.scrollWidth;
  if (wide > width) faults.push(`the page is ${wide} px wide`);
  return faults;
}"""


def forms(admin: User) -> list[str]:
    """Return the addresses of the pages that have a field for text in their main part."""
    text = re.compile(r'<(textarea|select|input type="(text|password|search|number)")')
    return [one for one, shown in pages(admin) if text.search(shown.partition("<main")[2])]


def kinds(page: Page) -> Iterator[str]:
    """Choose each value of each choice that changes what is shown; yield its name."""
    yield "as it opens"
    for radio in page.locator("main input[type=radio]").all():
        if not radio.is_visible():
            continue
        radio.check()
        yield f"{radio.get_attribute('name')}={radio.get_attribute('value')}"
    for choice in page.locator("main form[method=post] select[name$=kind]").all():
        for at in range(choice.locator("option").count()):
            if choice.is_visible():
                choice.select_option(index=at)
                yield f"{choice.get_attribute('name')}={choice.input_value()}"


@pytest.mark.parametrize("width", [1366, 390])
def test_no_field_is_narrow_and_nothing_overlaps_or_scrolls_sideways(
    look: Open, busy: Stage, admin: User, width: int
) -> None:
    page = look(admin, "/")
    page.set_viewport_size({"width": width, "height": 800})
    opened = forms(admin)
    assert {"/new/application/", "/new/query/", "/settings/account/"} <= set(opened)
    faults: list[str] = []
    for address in opened:
        page.goto(address)
        for kind in kinds(page):
            measured: Any = page.evaluate(MEASURE, [NARROWEST, width])
            faults += [f"{address} ({kind}): {fault}" for fault in measured]
    assert faults == [], "\n".join(faults)
