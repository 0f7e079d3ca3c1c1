"""What each address takes, by method: the table that the generated test holds Headgate to.

It repeats nothing that it tests: it is written by hand, and a new address without a line here
fails the test.
"""

from dataclasses import dataclass
from enum import StrEnum


class Need(StrEnum):
    """What whoever asks must have."""

    NOTHING = "nothing"  # strangers too
    VIEW = "view"
    OPERATE = "operate"  # and act on the application that the address or the form names
    DEFINE = "define"  # as for operate
    OPERATE_SOMEWHERE = "operate somewhere"  # the page before its form has named anything
    DEFINE_SOMEWHERE = "define somewhere"
    ADMINISTER = "administer"


#: Needs that are asked with an application.
OF_TEAM = frozenset({Need.OPERATE, Need.DEFINE})
_LETTERS = {
    "n": Need.NOTHING,
    "v": Need.VIEW,
    "o": Need.OPERATE,
    "d": Need.DEFINE,
    "O": Need.OPERATE_SOMEWHERE,
    "D": Need.DEFINE_SOMEWHERE,
    "a": Need.ADMINISTER,
}
_METHODS = {
    "get": "GET",
    "post": "POST",
    "put": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One address: its needs by method."""

    name: str
    needs: dict[str, Need]


_PAGES = """
healthz: get n
readyz: get n
login: get n post n
logout: post n
theme: post n
metrics: get v
live: get v post v
pod-news: get n
pod-archive: get n
pod-file: put n
pod-segment: put n delete n
search: get v
shortcuts: get v
docs: get v
docs-page: get v
docs-image: get v
find: get v
overview: get v
queries: get v
saved-views: post v
saved-view-forget: post v
query: get v
query-series: get v
query-runs: get v
query-failures: get v
query-definition: get v
query-activity: get v
query-log: get v
query-log-lines: get v
query-log-download: get v
run-log: get v
query-trigger: get v
query-trigger-change: post d
query-trigger-dump: post o
query-preflight: post o
query-records: post d
query-batch-records: get d
query-x-ray: get d post d
query-x-ray-rows: get d
query-async: get v
query-async-off: get d post d
query-threshold-preview: get v
schedule-preview: get v
schedules: get v
query-schedule: get v
query-schedule-pause: post o
query-schedule-resume: post o
application-schedule: get v
application-schedule-pause: post o
application-schedule-resume: post o
query-lag: get v
lineage: get v
query-lineage: get v
query-loss-correct: get o post o
query-go-on: get o post o
query-start: get o post o
query-stop: get o post o
query-restart: get o post o
query-takeover: get d post d
query-new: get D post d
query-edit: get d post d
query-labels: get d post d
query-delete: get d post d
queries-bulk: get O post O
query-checkpoint: get v
query-checkpoint-state: get v
query-checkpoint-kept: get v
query-checkpoint-compare: get v
query-checkpoint-batch: get v
query-snapshot: get o post o
query-snapshot-pin: post o
query-snapshot-remove: get o post o
query-rewind: get d post d
query-reset: get d post d
query-clone: get d post d
checkpoints: get v
failures: get v
failure: get v
failure-group: get v
failure-resolve: post o
failure-reopen: post o
runs: get v
run: get v
run-series: get v
connectors: get v
connector-remove: post a
spark-remove: post a
alerts: get v
incident: get v
incident-act: post o
alert-channels: get a
alert-channel-new: get a post a
alert-channel: get a post a
alert-channel-act: post a
alert-rules: get v
alert-rule-new: get a post a
alert-rule: get a post a
alert-rule-delete: post a
alert-rule-release: get a post a
alert-maintenance: get v
alert-maintenance-new: post o
alert-maintenance-end: post o
applications: get v
application: get v
application-revisions: get v
application-waiting: get v
spark-ui: get v
application-new: get D post d
application-edit: get d post d
application-delete: get d post d
application-spark: get d post d
application-labels: get d post d
application-start: post o
application-question: get d post d
application-release: get d post d
application-restart: get o post o
application-host-gone: get o post o
application-stop: get o post o
application-team: post a
pool-new: get d post d
pool-edit: get d post d
pool-delete: post d
operation: get v
operation-cancel: get o post o
deploys: get v
deploy: get v
deploy-cancel: get d post d
query-rollback: get d post d
query-release: get d post d
audit: get v
audit-export: get a
tokens: get v post a
token-revoke: post v
users: get a post a
user-groups: get a post a
user-group-change: post a
sso-login: get n post n
sso-callback: get n
user-change: post a
secrets: get a post a
secret-unbind: post a
allowed-paths: get a post a
allowed-path-take: post a
catalogs: get a post a
catalog-delete: post a
code-hosts: get a post a
code-host-take: post a
teams: get v
team: get v
team-new: post a
team-members: post a
team-delete: post a
account: get v post v
system: get v
account-zone: post v
account-elsewhere: post v
account-session: post v
"""
_REST = """
queries: get v post d
query: get v put d patch d delete d
queries-start: post o
queries-stop: post o
queries-restart: post o
query-start: post o
query-takeover: post d
query-stop: post o
query-restart: post o
query-owner: get v delete d
query-revisions: get v
query-runs: get v
query-progress: get v
query-failures: get v
query-labels: get v put d
query-advice: get v
query-async: get v
query-thread-dump: get v post o
query-thresholds: get v
query-threshold-preview: post v
query-schedule: get v
query-planned-runs: get v
schedules: get v
query-schedule-pause: post o
query-schedule-resume: post o
query-lag: get v
query-lineage: get v
lineage: get v
query-losses: get v
query-loss-correct: post o
query-go-on: post o
query-exposure: get v
query-async-off: post d
query-batches: get v
query-snapshots: get v post o
query-snapshot: get v patch o delete o
query-rewind: post d
query-reset: post d
query-clone: post d
query-preflight: post o
query-records: post d
query-batch-records: get d
query-x-ray: post d
query-x-ray-rows: get d
operations: get v
operation: get v
operation-cancel: post o
deploys: get v post d
deploy: get v
deploy-cancel: post d
query-rollback: post d
run: get v
run-log: get v
failure: get v
failure-groups: get v
failure-group: get v
failure-group-failures: get v
failure-group-resolve: post o
failure-group-reopen: post o
incidents: get v
incident: get v
incident-entries: get v
incident-acknowledge: post o
incident-snooze: post o
incident-assign: post o
incident-notes: post o
incident-close: post o
alert-channels: get a post a
alert-channel: get a put a delete a
alert-channel-test: post a
alert-rules: get v post a
alert-rule: get v put a delete a
alert-rule-owner: get v delete a
maintenances: get v post o
maintenance: get v delete o
checkpoints: get v
connectors: get v
connector: delete a
sparks: get v
spark: delete a
code: get v post D
upload: get v
catalogs: get a post a
catalog: get a put a delete a
code-hosts: get a post a
code-host: get a delete a
applications: get v post d
application: get v put d patch d delete d
application-start: post o
application-answer: post d
drivers: get v
driver-log: get v
application-owner: get v delete d
application-stop: post o
application-restart: post o
application-schedule: get v
application-planned-runs: get v
application-schedule-pause: post o
application-schedule-resume: post o
application-host-gone: post o
application-labels: get v put d
application-waits: get v
application-team: get v put a
pools: get v post d
pool: get v put d delete d
teams: get v post a
team: get v put a delete a
tokens: get v post a
token: get v delete v
audit: get a
audit-export: get a
secrets: get a
secret-bindings: get a post a
secret-binding: get a delete a
allowed-paths: get a post a
allowed-path-proposals: get a
allowed-path: get a delete a
group-roles: get a post a
group-role: get a put a delete a
me: get v
system: get v
apply: post d
export: get v
manifest-schema: get v
schema: get v
docs: get v
nothing: get v post v put v patch v delete v
"""


def _read(text: str, prefix: str = "") -> dict[str, Rule]:
    found = {}
    for line in text.strip().splitlines():
        name, _, given = line.partition(": ")
        words = given.split()
        pairs = zip(words[::2], words[1::2], strict=True)
        needs = {_METHODS[method]: _LETTERS[letter] for method, letter in pairs}
        found[prefix + name] = Rule(prefix + name, needs)
    return found


RULES = _read(_PAGES) | _read(_REST, "api:")
