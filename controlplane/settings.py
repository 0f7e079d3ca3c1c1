"""Every setting, with its default, its unit in its name, and a loud failure when it is wrong.

The environment variables are documented in `docs/settings.md`.
"""

import socket
from pathlib import Path

import environ

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

# --- where things are -----------------------------------------------------------------
HEADGATE_HOME = Path(env.str("HEADGATE_HOME", default=str(BASE_DIR / "var"))).resolve()
HEADGATE_HOST = env.str("HEADGATE_HOST", default=socket.gethostname())
HEADGATE_PORT = env.int("HEADGATE_PORT", default=8000)
DRIVERS_DIR = HEADGATE_HOME / "drivers"
CODE_DIR = HEADGATE_HOME / "code"
CHECKPOINTS_DIR = HEADGATE_HOME / "checkpoints"
SECRETS_DIR = HEADGATE_HOME / "secrets"
CONNECTORS_DIR = Path(env.str("HEADGATE_CONNECTORS", default=str(HEADGATE_HOME / "connectors")))
#: Roots under which users' code may lie; a python_path outside of them is refused.
CODE_ROOTS = [
    Path(root).resolve()
    for root in env.list("HEADGATE_CODE_ROOTS", default=[str(BASE_DIR / "examples")])
]

# --- Django ---------------------------------------------------------------------------
SECRET_KEY = env.str("SECRET_KEY", default="only-for-tests-and-builds")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "queries",
    "listeners",
    "controlplane",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django_htmx",
    "template_partials",
    "csp",
    "axes",
    "rules.apps.AutodiscoverRulesConfig",
    "rest_framework",
    "knox",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]

DATABASES = {
    "default": env.db_url("DATABASE_URL", default=f"sqlite:///{HEADGATE_HOME / 'headgate.sqlite3'}")
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # WAL lets readers and a writer work together; IMMEDIATE takes the write lock when the
    # transaction begins, so that two writers wait for each other instead of failing.
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000;"
        ),
    }

# --- Redis, Celery --------------------------------------------------------------------
REDIS_URL = env.str("REDIS_URL", default="redis://127.0.0.1:6379/0")
REDIS_SOCKET_TIMEOUT_S = 5

# --- tunables -------------------------------------------------------------------------
STARTS_AT_ONCE = env.int("HEADGATE_STARTS_AT_ONCE", default=2)  # drivers starting on one host
DRIVER_MEMORY_BUDGET_MB = env.int("HEADGATE_DRIVER_MEMORY_BUDGET_MB", default=0)  # 0: 80 % of host
START_DEADLINE_S = 180  # from spawn to Started
OPERATION_DEADLINE_S = 600
STOP_DEADLINE_S = 60  # a graceful stop becomes immediate
EVENT_STREAM = env.str("HEADGATE_EVENT_STREAM", default="headgate:events")
CHANGED_CHANNEL = EVENT_STREAM + ":changed"  # pub/sub: "query 42 changed"
FORCE_LISTENER_FALLBACK = env.bool("HEADGATE_FORCE_LISTENER_FALLBACK", default=False)
