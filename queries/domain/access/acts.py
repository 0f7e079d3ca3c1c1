"""What people and tokens do, as the audit log names it."""

from enum import StrEnum


class Act(StrEnum):
    """The kind of an entry; the value is stored and sealed with it, so never rename one."""

    SIGNED_IN = "signed-in"
    SIGN_IN_FAILED = "sign-in-failed"
    LOCKED_OUT = "locked-out"
    SIGNED_OUT = "signed-out"
    SESSIONS_ENDED = "sessions-ended"
    PASSWORD_CHANGED = "password-changed"
    PASSWORD_RESET = "password-reset"
    USER_CREATED = "user-created"
    USER_ACTIVATED = "user-activated"
    USER_DEACTIVATED = "user-deactivated"
    ROLE_GIVEN = "role-given"
    RIGHTS_GIVEN = "rights-given"
    GROUP_ROLES = "group-roles"
    TEAM = "team"
    TOKEN_CREATED = "token-created"
    TOKEN_REVOKED = "token-revoked"
    SECRET_BOUND = "secret-bound"
    SECRET_UNBOUND = "secret-unbound"
    DATA_ROOT = "data-root"
    CODE_UPLOADED = "code-uploaded"
    CODE_HOST = "code-host"
    DEFINITION = "definition"
    QUERY_IDENTITY = "query-identity"
    APPLIED = "applied"
    RELEASED = "released"
    FAILURES = "failures"
    ALERTS = "alerts"
    OPERATION = "operation"
    PROBE = "probe"
    BULK = "bulk"
    BULK_ITEM = "bulk-item"
    CANCELLED = "cancelled"
    DEPLOY = "deploy"
    EXPORTED = "exported"
    LOG_PRUNED = "log-pruned"


#: What pages show for each.
ACT_WORDS = {
    Act.SIGNED_IN: "signed in",
    Act.SIGN_IN_FAILED: "sign-in failed",
    Act.LOCKED_OUT: "locked out",
    Act.SIGNED_OUT: "signed out",
    Act.SESSIONS_ENDED: "ended sessions",
    Act.PASSWORD_CHANGED: "changed the password",
    Act.PASSWORD_RESET: "reset a password",
    Act.USER_CREATED: "created a user",
    Act.USER_ACTIVATED: "activated a user",
    Act.USER_DEACTIVATED: "deactivated a user",
    Act.ROLE_GIVEN: "gave a role",
    Act.RIGHTS_GIVEN: "gave rights",
    Act.GROUP_ROLES: "changed the roles of groups",
    Act.TEAM: "changed a team",
    Act.TOKEN_CREATED: "created a token",
    Act.TOKEN_REVOKED: "revoked a token",
    Act.SECRET_BOUND: "bound a secret",
    Act.SECRET_UNBOUND: "unbound a secret",
    Act.DATA_ROOT: "gave or took a data root",
    Act.CODE_UPLOADED: "uploaded code",
    Act.CODE_HOST: "listed or removed a git host",
    Act.DEFINITION: "changed a definition",
    Act.QUERY_IDENTITY: "said which query of a script is which",
    Act.APPLIED: "applied manifests",
    Act.RELEASED: "released from its owner",
    Act.FAILURES: "marked failures",
    Act.ALERTS: "changed alerts",
    Act.OPERATION: "requested an operation",
    Act.PROBE: "requested a probe or snapshot",
    Act.BULK: "requested a bulk action",
    Act.BULK_ITEM: "requested in bulk",
    Act.CANCELLED: "cancelled an operation",
    Act.DEPLOY: "deployed, or ended a deploy",
    Act.EXPORTED: "exported",
    Act.LOG_PRUNED: "removed old entries",
}
