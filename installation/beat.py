"""Run Celery beat: `python -m installation.beat` queues the ticks of the settings until SIGTERM.

It knows the names of the tasks and imports none, neither Django's apps: with them, beat would need
four times as much memory. Celery sends a task that beat does not know by its name.
"""

import os
from datetime import UTC, datetime
from typing import Any

from celery import Celery, signals

from controlplane import signs_of_life

os.umask(0o077)  # as in manage.py
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

app = Celery("headgate", fixups=[], set_as_current=False)
app.config_from_object("django.conf:settings", namespace="CELERY")


@signals.beat_init.connect
def _starts(**_: Any) -> None:
    signals.after_task_publish.connect(_has_sent, weak=False)


def _has_sent(sender: str = "", **_: Any) -> None:
    if sender == "queries.tasks.on_each_host":
        signs_of_life.try_to_say(signs_of_life.BEAT, now=datetime.now(UTC))


def main() -> None:
    """Run beat in this process, with the logging of the settings."""
    import logging.config

    from django.conf import settings

    logging.config.dictConfig(settings.LOGGING)
    signals.setup_logging.connect(lambda **_: None, weak=False)  # Celery must not change it
    app.Beat(quiet=True).run()


if __name__ == "__main__":
    main()
