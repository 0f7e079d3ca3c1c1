"""Actions of users and tokens, as the audit log names them."""

from enum import StrEnum


class Act(StrEnum):
    """The kind of an audit entry. Values are stored and sealed with the entry: never rename one."""

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
    INSTALLED = "installed"
    DEFINITION = "definition"
    QUERY_IDENTITY = "query-identity"
    APPLIED = "applied"
    RELEASED = "released"
    FAILURES = "failures"
    ALERTS = "alerts"
    LOSS_CORRECTED = "loss-corrected"
    OPERATION = "operation"
    SCHEDULE = "schedule"
    PROBE = "probe"
    BULK = "bulk"
    BULK_ITEM = "bulk-item"
    CANCELLED = "cancelled"
    DEPLOY = "deploy"
    EXPORTED = "exported"
    LOG_PRUNED = "log-pruned"


#: The label that pages show for each action.
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
    Act.ROLE_GIVEN: "assigned a role",
    Act.RIGHTS_GIVEN: "assigned rights",
    Act.GROUP_ROLES: "changed group roles",
    Act.TEAM: "changed a team",
    Act.TOKEN_CREATED: "created a token",
    Act.TOKEN_REVOKED: "revoked a token",
    Act.SECRET_BOUND: "bound a secret",
    Act.SECRET_UNBOUND: "unbound a secret",
    Act.DATA_ROOT: "allowed or removed a data root",
    Act.CODE_UPLOADED: "uploaded code",
    Act.CODE_HOST: "added or removed a git host",
    Act.INSTALLED: "installed or removed Spark or a connector",
    Act.DEFINITION: "changed a definition",
    Act.QUERY_IDENTITY: "identified a script's query",
    Act.APPLIED: "applied manifests",
    Act.RELEASED: "released from owner",
    Act.FAILURES: "marked failures",
    Act.ALERTS: "changed alerts",
    Act.LOSS_CORRECTED: "corrected the loss ledger",
    Act.OPERATION: "requested an operation",
    Act.SCHEDULE: "paused or resumed a schedule",
    Act.PROBE: "requested a probe or snapshot",
    Act.BULK: "requested a bulk action",
    Act.BULK_ITEM: "bulk action on one object",
    Act.CANCELLED: "cancelled an operation",
    Act.DEPLOY: "deployed, or ended a deploy",
    Act.EXPORTED: "exported",
    Act.LOG_PRUNED: "removed old entries",
}
