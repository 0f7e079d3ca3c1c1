"""Every answer carries the headers that keep a browser safe."""

import pytest
from django.test import Client


@pytest.mark.django_db
def test_the_sign_in_page_allows_no_inline_script_and_no_framing(client: Client) -> None:
    answer = client.get("/login/")
    policy = answer["Content-Security-Policy"]
    assert answer.status_code == 200
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"


@pytest.mark.django_db
def test_ten_wrong_passwords_lock_a_name_from_that_address(client: Client, viewer: object) -> None:
    for _ in range(10):
        answer = client.post("/login/", {"username": "vera", "password": "wrong"})
    assert answer.status_code == 429
    right = client.post("/login/", {"username": "vera", "password": "a password of the cast"})
    assert right.status_code == 429
