"""What happens at a sign-in by an identity provider stands in the audit log."""

import pytest

from queries.domain.access import Act
from queries.models.access.audit import AuditEntry
from tests.oidc.conftest import give
from tests.oidc.real import RealProvider
from tests.oidc.traveller import Traveller

pytestmark = pytest.mark.oidc


def test_a_first_sign_in_another_role_and_a_refusal_are_recorded(real: RealProvider) -> None:
    give(data="viewer", admins="admin")
    for groups in (["data"], ["admins"], ["admins"], []):
        real.has(nina=groups)
        Traveller("nina").sign_in()
    rows = AuditEntry.objects.exclude(kind=Act.GROUP_ROLES).order_by("pk")
    assert [
        (row.kind, row.actor, row.details_line) for row in rows if row.kind != Act.SIGNED_IN
    ] == [
        (Act.USER_CREATED, "nina", "role viewer, by single sign-on"),
        (Act.ROLE_GIVEN, "nina", "viewer → admin, by groups"),
        (Act.ROLE_GIVEN, "nina", "admin → none, by groups"),
        (Act.SIGN_IN_FAILED, "", "why None of your groups has a role here."),
    ]
    assert rows.filter(kind=Act.SIGNED_IN, actor="nina").count() == 3
