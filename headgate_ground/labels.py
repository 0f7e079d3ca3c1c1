"""The syntax of a label: `team=data`."""

import re

#: For its name and its value: as in Kubernetes.
LABEL = re.compile(r"[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?")
#: Labels per object, and per selector.
MOST_LABELS = 16
