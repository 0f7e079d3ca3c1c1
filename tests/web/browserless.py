"""A reader of pages that fills and sends forms as a browser without JavaScript does."""

import re
from html.parser import HTMLParser
from typing import Any

from django.test import Client

_VOID = frozenset({"input", "meta", "link", "br", "img", "hr", "use", "rect", "line", "path"})


class _Reader(HTMLParser):
    """Collect the named fields of one form, the texts by element id, and all visible text."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.inside = not form
        self.fields: dict[str, str] = {}
        self.by_id: dict[str, str] = {}
        self.described: dict[str, str] = {}  # field name -> aria-describedby
        self.invalid: set[str] = set()
        self.text: list[str] = []
        self._open: list[tuple[str, str]] = []
        self._area = self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag not in _VOID:
            self._open.append((tag, given.get("id", "")))
        if tag == "form" and given.get("id") == self.form:
            self.inside = True
        name = given.get("name", "")
        if not self.inside:
            return
        if name:
            self.described[name] = given.get("aria-describedby", "")
            if given.get("aria-invalid") == "true":
                self.invalid.add(name)
        if tag == "input" and name:
            box = given.get("type") in ("radio", "checkbox")
            if not box or "checked" in given:
                self.fields[name] = given.get("value", "on" if box else "")
        elif tag == "textarea":
            self._area = name
            self.fields[name] = ""
        elif tag == "select":
            self._select = name
        elif (
            tag == "option"
            and self._select
            and ("selected" in given or self._select not in self.fields)
        ):
            self.fields[self._select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        while self._open and self._open.pop()[0] != tag:
            pass
        if tag == "form" and self.form:
            self.inside = False
        self._area = "" if tag == "textarea" else self._area
        self._select = "" if tag == "select" else self._select

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data
        self.text.append(data)
        for _, key in self._open:
            if key:
                self.by_id[key] = self.by_id.get(key, "") + data


class Page:
    """One page as a person without JavaScript has it."""

    def __init__(self, client: Client, address: str, *, form: str = "", answer: Any = None) -> None:
        self.client, self.form = client, form
        answer = answer or client.get(address, follow=True)
        self.status: int = answer.status_code
        self.address: str = answer.redirect_chain[-1][0] if answer.redirect_chain else address
        self.html: str = answer.content.decode()
        reader = _Reader(form)
        reader.feed(self.html)
        self.fields = {  # HTML drops the first line break of a text area
            name: value.removeprefix("\r\n").removeprefix("\n")
            for name, value in reader.fields.items()
        }
        self.described, self.invalid, self.by_id = reader.described, reader.invalid, reader.by_id
        self.text = re.sub(r"\s+", " ", " ".join(reader.text))

    def press(self, button: str = "", **typed: str) -> "Page":
        """Type into fields (`__` stands for `-`), press a button, return the next page."""
        data = {**self.fields, **{name.replace("__", "-"): value for name, value in typed.items()}}
        if button:
            data["do"] = button
        answer = self.client.post(self.address, data, follow=True)
        return Page(self.client, self.address, form=self.form, answer=answer)

    def error_at(self, field: str) -> str:
        """Return the error that a screen reader reads out with the field, "" for none."""
        name = field.replace("__", "-")
        ids = self.described.get(name, "").split()
        errors = [self.by_id.get(one, "") for one in ids if one.endswith("_error")]
        return " ".join(" ".join(errors).split())
