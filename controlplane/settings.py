"""Define every setting, with its default, and its unit in its name; reject invalid values.

An invalid value aborts the start. The environment variables are documented in `docs/settings.md`; a
test compares that table with the variables read here. Small files in HEADGATE_HOME, written by
`make run`, replace SECRET_KEY and REDIS_URL if these are not set.
"""

import os
import secrets
import socket
import sys
from datetime import timedelta
from pathlib import Path

from csp.constants import NONCE, NONE, SELF

from controlplane import environment as env
from controlplane.home import Home, read_line
from controlplane.masking import not_a_probe
from headgate_ground import packages
from headgate_server import __version__, places

#: The folder of templates, static files, examples and connector recipes.
BASE_DIR = places.DATA
VERSION = __version__

env.refuse_former_names(
    {"HEADGATE_WALLS": "HEADGATE_ISOLATION", "HEADGATE_DATA_ROOTS": "HEADGATE_ALLOWED_PATHS"}
)

# --- places ---------------------------------------------------------------------------
HEADGATE_HOME = Path(env.text("HEADGATE_HOME", str(places.HOME), shown="var/")).resolve()
HEADGATE_PORT = env.whole("HEADGATE_PORT", 8000, low=1, high=65535)
#: Port of the Spark UI server: a separate origin from the console's (docs/security.md).
SPARK_UI_PORT = env.whole(
    "HEADGATE_SPARK_UI_PORT",
    min(HEADGATE_PORT + 1, 65535),
    low=1,
    high=65535,
    shown="HEADGATE_PORT + 1",
)
#: Port of the trial cluster's master; its page's port keeps the same distance (machine.cluster).
CLUSTER_PORT = env.whole("HEADGATE_CLUSTER_PORT", 7077, low=1024, high=60_000)
#: Port of the trial HDFS, which the locations of its checkpoints contain; 8020 is Hadoop's default.
HADOOP_PORT = env.whole("HEADGATE_HADOOP_PORT", 8020, low=1024, high=65_535)
#: Port of the trial Kubernetes cluster's API server; its etcd has the next two, and it chooses the
#: pods' network (installation.machine.kubernetes).
KUBERNETES_PORT = env.whole("HEADGATE_KUBERNETES_PORT", 16443, low=1024, high=65_533)
#: Kubeconfig of the account with which this host's drivers create executors as pods
#: (launchers.process.environment).
KUBECONFIG = env.text("HEADGATE_KUBECONFIG", "")
#: Kubeconfig of the account with which this host's worker creates drivers as pods. It can read
#: their secrets, so it is never that of drivers, which authors' code can use.
POD_KUBECONFIG = env.text("HEADGATE_POD_KUBECONFIG", "")
#: Where drivers in pods reach the web process; "" if there are none.
POD_URL = env.web_address("HEADGATE_POD_URL")
#: The image of drivers' pods, for applications that name none; "" if they must.
POD_IMAGE = env.text("HEADGATE_POD_IMAGE", "")
#: A file with the certificates that pods trust, in PEM; "" for those of the image.
POD_AUTHORITIES = env.text("HEADGATE_POD_AUTHORITIES", "")
#: Folder for the checkpoints of their queries, on storage that pods reach; "" if each must be
#: specified.
POD_CHECKPOINTS = env.store("HEADGATE_POD_CHECKPOINTS")
#: Where executors on other hosts, and in pods, reach this host's drivers (runtime.pods).
DRIVER_ADDRESS = env.text("HEADGATE_DRIVER_ADDRESS", "")
HOME = Home(HEADGATE_HOME)
#: `make run` keeps the first name, because drivers must find their host again if the machine is
#: renamed.
HEADGATE_HOST = env.text(
    "HEADGATE_HOST",
    read_line(HOME.host) or socket.gethostname(),
    shown="HEADGATE_HOME/host, else the machine's name",
)
DRIVERS_DIR = HEADGATE_HOME / "drivers"
CODE_DIR = HEADGATE_HOME / "code"  # code copies, uploads and git contents, by content
PACKAGES_DIR = HEADGATE_HOME / "packages"  # packages of applications, by content
CHECKPOINTS_DIR = HEADGATE_HOME / "checkpoints"
MIRRORS_DIR = HEADGATE_HOME / "mirrors"  # of the logs of checkpoints that are not on a local disk
JARS_DIR = HEADGATE_HOME / "jars"  # our Java classes, compiled on this host
SPARKS_DIR = HEADGATE_HOME / "sparks"  # other versions of Spark, a folder each
SECRETS_DIR = Path(
    env.text("HEADGATE_SECRETS", str(HEADGATE_HOME / "secrets"), shown="HEADGATE_HOME/secrets")
)
CONNECTORS_DIR = Path(
    env.text(
        "HEADGATE_CONNECTORS", str(HEADGATE_HOME / "connectors"), shown="HEADGATE_HOME/connectors"
    )
)
#: Roots of users' code; a python_path outside them is refused.
CODE_ROOTS = [
    Path(root).resolve()
    for root in env.names("HEADGATE_CODE_ROOTS", (str(BASE_DIR / "examples"),), shown="examples/")
]
#: Folders and URL prefixes allowed for sources, tables and sinks (docs/security.md).
ALLOWED_PATHS = env.names(
    "HEADGATE_ALLOWED_PATHS",
    (str(HEADGATE_HOME / "data"), str(HEADGATE_HOME / "demo")),
    shown="HEADGATE_HOME/data, HEADGATE_HOME/demo",
)
#: Brokers that Headgate itself may query before anyone has started the query that names them.
BROKER_HOSTS = [pattern.lower() for pattern in env.names("HEADGATE_BROKER_HOSTS", ())]
#: Folders of the control plane and of its Python, which can never be allowed paths.
OWN_FOLDERS = [
    *(*places.own(), HEADGATE_HOME, SECRETS_DIR, CONNECTORS_DIR, *CODE_ROOTS),
    *(Path(prefix) for prefix in (sys.prefix, sys.base_prefix) if prefix != "/usr"),
]
#: Launcher kinds by the name in HEADGATE_LAUNCHER: the function that creates one.
LAUNCHERS = {"process": "queries.launchers.pods.launcher.configured"}
#: The module with what is known and done about hosts (`controlplane.hosts`).
HOST_SELECTORS = "queries.selectors.hosts"
HOST_SERVICE = "queries.services.supervision.hosts"
#: The module with what is known about drivers (`controlplane.hosts`).
SENDER_SELECTORS = "queries.selectors.supervision.senders"
#: For files that Spark and users' code write. Headgate's own are private to its account.
DATA_UMASK = env.mode("HEADGATE_DATA_UMASK", "022")
LAUNCHER = env.choice("HEADGATE_LAUNCHER", "process", tuple(LAUNCHERS))
#: How drivers are isolated from the rest of their host: queries.domain.hosts, docs/security.md.
#: Workers refuse `accounts`, which is gone: queries.services.system.installation.
ISOLATION = env.choice("HEADGATE_ISOLATION", "auto", ("auto", "bubblewrap", "neither", "accounts"))
#: Whether an admin accepts that a worker that runs as root, or does not isolate drivers, serves
#: several teams and authors.
ROOT_WORKER = env.flag("HEADGATE_ROOT_WORKER", False)
#: Names that a definition's "env:NAME" may resolve, on the driver's host.
SECRET_ENV_ALLOWLIST = env.names("HEADGATE_SECRET_ENV", ())

# --- Django ---------------------------------------------------------------------------
SECRET_KEY = env.secret("SECRET_KEY", read_line(HOME.secret_key), shown="HEADGATE_HOME/secret_key")
#: Running without a key is fine for builds and tests; `asgi.py` refuses to, because the key ends
#: with the process.
SECRET_KEY_IS_EPHEMERAL = not SECRET_KEY
SECRET_KEY = SECRET_KEY or secrets.token_urlsafe(50)
DEBUG = env.flag("DEBUG", False)
ALLOWED_HOSTS = env.names("ALLOWED_HOSTS", ("127.0.0.1", "localhost", "[::1]"))
if POD_URL:
    ALLOWED_HOSTS.append(env.host_in(POD_URL))
CSRF_FAILURE_VIEW = "queries.views.console.errors.csrf_failure"
CSRF_TRUSTED_ORIGINS = env.names("CSRF_TRUSTED_ORIGINS", ())
ROOT_URLCONF = "installation.urls"
ASGI_APPLICATION = "installation.asgi.application"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "queries",
    "listeners",
    "installation",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth.account",  # its tables are required for single sign-on; its pages are not used
    "allauth.socialaccount",
    "csp",
    "axes",
    "rules.apps.AutodiscoverRulesConfig",
    "rest_framework",
    "knox",
    "drf_spectacular",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "installation.web.front.StaticFiles",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "queries.views.access.sign_in.Requests",
    "queries.views.console.errors.Problems",
    "allauth.account.middleware.AccountMiddleware",  # required by allauth
    "axes.middleware.AxesMiddleware",  # last, as its documentation requires
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "queries.views.console.shell.shell",
                "queries.views.console.shell.system",
            ],
        },
    }
]

# --- static files ---------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = Path(
    env.text("HEADGATE_STATIC", str(HEADGATE_HOME / "static"), shown="HEADGATE_HOME/static")
)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
WHITENOISE_ALLOW_ALL_ORIGINS = False

# --- authentication -------------------------------------------------------------------
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "rules.permissions.ObjectPermissionBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
AXES_FAILURE_LIMIT = 10  # wrong passwords per user and address
AXES_COOLOFF_TIME = timedelta(minutes=10)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_VERBOSE = False

# --- single sign-on: docs/one-machine.md, docs/security.md -----------------------------
#: Plain http to the identity provider; otherwise only for a provider on this machine.
OIDC_ALLOW_HTTP = env.flag("HEADGATE_OIDC_ALLOW_HTTP", False)
OIDC_ISSUER = env.issuer("HEADGATE_OIDC_ISSUER", http_allowed=OIDC_ALLOW_HTTP)  # "": off
OIDC_CLIENT_ID = env.text("HEADGATE_OIDC_CLIENT_ID", "")
OIDC_CLIENT_SECRET = env.secret("HEADGATE_OIDC_CLIENT_SECRET")
OIDC_CLIENT_AUTH = env.choice(
    "HEADGATE_OIDC_CLIENT_AUTH",
    "client_secret_basic",
    ("client_secret_basic", "client_secret_post"),
)
OIDC_SCOPES = env.names("HEADGATE_OIDC_SCOPES", ("profile", "email"))  # "openid" is always added
OIDC_GROUPS_CLAIM = env.text("HEADGATE_OIDC_GROUPS_CLAIM", "groups")
OIDC_NAME = env.text("HEADGATE_OIDC_NAME", "single sign-on")  # button label: "Sign in with …"
#: The contact shown to users whose groups do not grant a role.
OIDC_CONTACT = env.text("HEADGATE_OIDC_CONTACT", "an admin of Headgate")
#: After this time, users must sign in through the provider again, so that removed groups take
#: effect.
OIDC_SESSION_HOURS = env.whole("HEADGATE_OIDC_SESSION_HOURS", 12, low=1, high=336)
if OIDC_ISSUER and not (OIDC_CLIENT_ID and OIDC_CLIENT_SECRET):
    raise env.wrong(
        "HEADGATE_OIDC_ISSUER",
        OIDC_ISSUER,
        "Set HEADGATE_OIDC_CLIENT_ID and HEADGATE_OIDC_CLIENT_SECRET too.",
    )
#: Who may sign in with a Headgate password.
LOCAL_LOGIN = env.choice("HEADGATE_LOCAL_LOGIN", "all", ("all", "admins"))
SOCIALACCOUNT_ADAPTER = "queries.services.access.identity_provider.BackChannel"

# --- sessions, cookies, headers -------------------------------------------------------
# Django's own defaults are not repeated: HttpOnly, SameSite=Lax, nosniff, no frames,
# same-origin referrers and openers. `tests/web/console/test_setup_headers.py` checks the headers.
#: Proxies whose X-Forwarded-For is trusted; otherwise the connection's address counts.
TRUSTED_PROXIES = env.networks("HEADGATE_TRUSTED_PROXIES")
PROXY_SPEAKS_TLS = env.flag("HEADGATE_HTTPS", False)  # reported in X-Forwarded-Proto
#: PEM files with which `make run` serves TLS itself; "" if it does not.
TLS_CERT = env.text("HEADGATE_TLS_CERT", "")  # the certificate, then its issuers
TLS_KEY = env.text("HEADGATE_TLS_KEY", "")
HTTPS = PROXY_SPEAKS_TLS or bool(TLS_CERT)
if bool(TLS_CERT) != bool(TLS_KEY):
    raise env.wrong("HEADGATE_TLS_KEY", TLS_KEY, "Set both HEADGATE_TLS_CERT and HEADGATE_TLS_KEY.")
#: The address on which `make run` listens.
BIND = env.text("HEADGATE_BIND", "127.0.0.1")
if BIND not in ("127.0.0.1", "::1", "localhost") and not TLS_CERT:
    raise env.wrong(
        "HEADGATE_BIND", BIND, "Passwords would be readable in transit. Set HEADGATE_TLS_CERT too."
    )
#: Browsers share cookies between the ports of a host; two installations differ by name.
SESSION_COOKIE_NAME = f"headgate_session_{HEADGATE_PORT}"
SESSION_ENGINE = "queries.models.access.accounts"
#: Minutes of inactivity after which a session ends, and days after which every session does.
SESSION_IDLE_MIN = env.whole("HEADGATE_SESSION_IDLE_MIN", 480, low=1, high=525_600)
SESSION_COOKIE_AGE = 86400 * env.whole("HEADGATE_SESSION_DAYS", 14, low=1, high=365)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 365 * 86400 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PROXY_SPEAKS_TLS else None
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],  # Tabler's stylesheet embeds its small icons as data:
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "object-src": [NONE],
    }
}

# --- database -------------------------------------------------------------------------
DATABASES = {
    "default": env.database(
        "DATABASE_URL",
        f"sqlite:///{HEADGATE_HOME / 'headgate.sqlite3'}",
        shown="HEADGATE_HOME/headgate.sqlite3",
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # WAL lets readers and a writer work in parallel; IMMEDIATE takes the write lock when the
    # transaction begins, so that two writers wait for each other instead of failing.
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        # The console and supervision repeat some hundreds of different statements. With Python's
        # default of 128, half of them would be prepared again each time.
        "cached_statements": 1000,
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000;"
        ),
    }
else:
    # Limits on every wait: to connect (seconds), for a statement and for a lock (milliseconds).
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        {
            "connect_timeout": 5,
            "options": "-c statement_timeout=60000 -c lock_timeout=20000",
        }
    )

# --- Redis, Celery --------------------------------------------------------------------
REDIS_URL = env.redis_url(
    "REDIS_URL",
    HOME.stored_redis_url() or "redis://127.0.0.1:6379/0",
    shown="the embedded one, else redis://127.0.0.1:6379/0",
)
#: Where drivers in pods reach Redis.
POD_REDIS_URL = env.redis_url("HEADGATE_POD_REDIS_URL", REDIS_URL, shown="REDIS_URL")
REDIS_SOCKET_TIMEOUT_S = 5
EVENT_STREAM = env.text("HEADGATE_EVENT_STREAM", "headgate:events")
DRIVER_REDIS_USERS = env.flag("HEADGATE_DRIVER_REDIS_USERS", True)
CHANGED_CHANNEL = EVENT_STREAM + ":changed"  # pub/sub: "query 42 changed"
QUEUE = EVENT_STREAM.split(":")[0]  # for any worker
HOST_QUEUE = f"{QUEUE}.{HEADGATE_HOST}"  # for this host's processes
WORKER_THREADS = env.whole("HEADGATE_WORKER_THREADS", 8, low=2, high=64)

CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # no limit: Redis comes back
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 300,  # seconds; every task is much shorter
    "socket_timeout": REDIS_SOCKET_TIMEOUT_S,
    "socket_connect_timeout": REDIS_SOCKET_TIMEOUT_S,
    "socket_keepalive": True,
    "health_check_interval": 30,
    "global_keyprefix": f"{QUEUE}:celery:",
}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = QUEUE
#: The number of tasks after which Celery closes a thread's database connection; by default, it does
#: so around every task. `controlplane.celery` closes connections that are too old or broken.
CELERY_DB_REUSE_MAX = sys.maxsize
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = WORKER_THREADS
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False

# --- REST -----------------------------------------------------------------------------
KNOX_TOKEN_MODEL = "queries.AccessToken"
#: knox would create its own table for the token model that ours replaces.
MIGRATION_MODULES = {"knox": None}
REST_KNOX = {"TOKEN_TTL": timedelta(days=90)}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "knox.auth.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Headgate",
    "DESCRIPTION": "The control plane for Spark Structured Streaming.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v[0-9]+",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "queries.api.schema.add_components",
    ],
    "ENUM_NAME_OVERRIDES": {
        "StopModeEnum": "queries.api.definitions.changes.STOP_MODES",
        "PoolModeEnum": "queries.domain.definitions.spec.SCHEDULER_MODES",
        "SparkEnum": "queries.domain.sparks.SPARKS",
        "OperationOutcomeEnum": "queries.api.bodies.OUTCOMES",
        "ChannelKindEnum": "queries.api.alerts.bodies.CHANNEL_KINDS",
        "EntryKindEnum": "queries.api.alerts.bodies.ENTRY_KINDS",
        "IncidentKindEnum": "queries.api.alerts.bodies.INCIDENT_KINDS",
        "IncidentStateEnum": "queries.api.alerts.bodies.INCIDENT_STATES",
        "DeployStateEnum": "queries.api.deploys.DEPLOY_STATES",
        "DeployedStateEnum": "queries.api.deploys.CHANGE_STATES",
    },
}

# --- tunables: supervision, telemetry, retention --------------------------------------
STARTS_AT_ONCE = env.whole(  # drivers per host; the start of one keeps two cores busy
    "HEADGATE_STARTS_AT_ONCE",
    min(max(1, (os.cpu_count() or 1) // 2), 64),
    low=1,
    high=64,
    shown="half the host's cores",
)
DRIVER_MEMORY_BUDGET_MB = env.whole(  # 0: 80 % of the host's memory
    "HEADGATE_DRIVER_MEMORY_BUDGET_MB", 0, low=0, high=16_777_216
)
#: A start is given up when it has not advanced for START_DEADLINE_S, or has taken START_MAX_S:
#: on a busy host, a healthy start may take many minutes (`queries.domain.supervision.progress`).
START_DEADLINE_S = env.whole("HEADGATE_START_DEADLINE_S", 180, low=10, high=3600)
START_MAX_S = max(START_DEADLINE_S, env.whole("HEADGATE_START_MAX_S", 1800, low=10, high=86400))
#: Whether standbys start on a busy host, too: for hosts that always are, and still have room.
STANDBYS_WHEN_BUSY = env.flag("HEADGATE_STANDBYS_WHEN_BUSY", False)
OPERATION_DEADLINE_S = env.whole("HEADGATE_OPERATION_DEADLINE_S", 600, low=10, high=86400)
STOP_DEADLINE_S = env.whole(  # then a graceful stop becomes immediate
    "HEADGATE_STOP_DEADLINE_S", 60, low=1, high=3600
)
HOST_GONE_AFTER_S = env.whole(  # of silence, before a user can declare a host gone
    "HEADGATE_HOST_GONE_S", 60, low=15, high=86400
)
#: Seconds between a driver's looks for a later start on a checkpoint that is not local.
FENCE_WATCH_S = env.whole("HEADGATE_FENCE_WATCH_S", 2, low=1, high=60)
#: Whether the worker makes archives of Spark's classes, with which drivers start faster.
CLASS_ARCHIVES = env.flag("HEADGATE_CLASS_ARCHIVES", True)
FORCE_LISTENER_FALLBACK = env.flag("HEADGATE_FORCE_LISTENER_FALLBACK", False)
PROGRESS_RETENTION_DAYS = env.whole("HEADGATE_PROGRESS_DAYS", 7, low=1, high=3650)  # raw progress
HISTORY_RETENTION_DAYS = env.whole("HEADGATE_HISTORY_DAYS", 90, low=1, high=3650)  # runs, failures
AUDIT_RETENTION_DAYS = env.whole("HEADGATE_AUDIT_DAYS", 365, low=1, high=36_500)  # the audit log
#: Per address and web process; trusted proxies have no cap. All tabs of a browser together open
#: six.
CONNECTIONS_PER_ADDRESS = env.whole("HEADGATE_CONNECTIONS_PER_ADDRESS", 200, low=20, high=100_000)
#: Requests per user, or per token, and minute; 0: no limit. A bulk action counts once.
OPERATIONS_PER_MINUTE = env.whole("HEADGATE_OPERATIONS_PER_MINUTE", 60, low=0, high=100_000)
PROBES_PER_MINUTE = env.whole("HEADGATE_PROBES_PER_MINUTE", 6, low=0, high=100_000)
BULK_PER_MINUTE = env.whole("HEADGATE_BULK_PER_MINUTE", 6, low=0, high=100_000)
DEPLOYS_PER_MINUTE = env.whole("HEADGATE_DEPLOYS_PER_MINUTE", 6, low=0, high=100_000)
UPLOADS_PER_MINUTE = env.whole("HEADGATE_UPLOADS_PER_MINUTE", 20, low=0, high=100_000)
DRIVER_FOLDERS_KEPT = env.whole("HEADGATE_DRIVER_FOLDERS", 20, low=1, high=1000)  # per application
RISK_WITHIN_H = env.whole(  # data loss within this time puts a query at risk
    "HEADGATE_RISK_HOURS", 24, low=1, high=8760
)
STORAGE_JVMS = env.whole("HEADGATE_STORAGE_JVMS", 3, low=1, high=64)  # per host
STORAGE_IDLE_S = env.whole("HEADGATE_STORAGE_IDLE_S", 300, low=10, high=86_400)
SNAPSHOTS_KEPT = env.whole("HEADGATE_SNAPSHOTS", 10, low=0, high=1000)  # per query, unpinned
#: Maximum size of an uploaded archive, in bytes; unpacked, the limit is lower (queries.code_roots).
CODE_UPLOAD_MOST_BYTES = 64 * 1024 * 1024
CODE_DAYS = env.whole("HEADGATE_CODE_DAYS", 7, low=1, high=3650)  # unreferenced code, packages
#: Total time of one download of code from git, or of an application's packages.
DOWNLOAD_S = env.whole("HEADGATE_DOWNLOAD_S", 600, low=10, high=86_400)
DOWNLOAD_MB = env.whole("HEADGATE_DOWNLOAD_MB", 2048, low=1, high=1_048_576)
DISK_WARNING_MB = env.whole("HEADGATE_DISK_WARNING_MB", 1024, low=0, high=16_777_216)  # free space
#: A query that has been LAGGING for this long is an incident.
ALERT_LAGGING_MINUTES = env.whole("HEADGATE_ALERT_LAGGING_MINUTES", 10, low=0, high=10_080)
#: State that will fill its driver's memory within this time is an incident.
ALERT_STATE_FULL_HOURS = env.whole("HEADGATE_ALERT_STATE_FULL_HOURS", 6, low=0, high=720)
#: A query with async progress tracking that would replay more records than this is an incident.
ALERT_REPLAY_RECORDS = env.whole(
    "HEADGATE_ALERT_REPLAY_RECORDS", 1_000_000, low=0, high=1_000_000_000_000
)
#: The console's public address; links in messages start with it.
PUBLIC_URL = env.text("HEADGATE_URL", "").rstrip("/")
#: The public origin of Spark UIs, with "{host}" for the driver's host; "" for this machine's own
#: SPARK_UI_PORT.
SPARK_UI_URL = env.text("HEADGATE_SPARK_UI_URL", "").rstrip("/")
if SPARK_UI_URL and SPARK_UI_URL == PUBLIC_URL:
    raise env.wrong(
        "HEADGATE_SPARK_UI_URL",
        SPARK_UI_URL,
        "Use a host name or port different from HEADGATE_URL's.",
    )
#: Private networks that alerts and the dead man's switch can be sent to: "10.20.0.0/16".
ALERT_NETWORKS = env.networks("HEADGATE_ALERT_NETWORKS")
#: Networks whose requests for `/metrics` need no token.
METRICS_NETWORKS = env.networks("HEADGATE_METRICS_NETWORKS")
#: Only queries with these labels have series of their own; {}: all.
METRICS_SELECTOR = env.labels("HEADGATE_METRICS_SELECTOR")
#: The URL that the watcher checks for the web process.
WATCHED_URL = env.text(
    "HEADGATE_WATCHED_URL",
    f"{'https' if TLS_CERT else 'http'}://127.0.0.1:{HEADGATE_PORT}/healthz",
    shown="http://127.0.0.1:HEADGATE_PORT/healthz",
)
#: Called every minute while all of Headgate works, so that an external watcher notices when this
#: machine is gone: "env:NAME", "file:NAME" or the address itself; "" for none.
DEAD_MANS_SWITCH_URL = env.secret("HEADGATE_DEAD_MANS_SWITCH_URL", "")
DEMO = env.flag("HEADGATE_DEMO", True)  # the feeder and the flight queries

# --- logging --------------------------------------------------------------------------
LOG_LEVEL = env.choice("HEADGATE_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "controlplane.masking.Masked",
            "format": "%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        }
    },
    "filters": {
        "no_probes": {
            "()": "django.utils.log.CallbackFilter",
            "callback": not_a_probe,
        }
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        **{name: {"level": LOG_LEVEL} for name in packages.OURS},
        "celery": {"level": "INFO"},
        "celery.app.trace": {"level": "WARNING"},  # a line for each nudge is noise
        "celery.worker.strategy": {"level": "WARNING"},
        "django": {"handlers": [], "level": "WARNING"},
        "django.request": {"level": "ERROR", "filters": ["no_probes"]},
    },
}
