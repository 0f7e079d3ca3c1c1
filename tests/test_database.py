"""The tests run on the database that was asked for."""

import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_database_is_the_one_that_was_asked_for(database: str) -> None:
    assert connection.vendor == database
