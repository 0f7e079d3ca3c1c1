"""Start an executor from the variables that Spark sets in its pod, or run any other command.

Spark's Kubernetes backend runs the image with the argument `executor` (source: Spark's own image,
resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh).
"""

import os
import re
import sys

_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def executor(variables: dict[str, str]) -> list[str]:
    """Return the command of an executor."""
    options = {
        int(match[1]): value for name, value in variables.items() if (match := _OPTION.match(name))
    }
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    home = variables["SPARK_HOME"]
    classes = (
        variables.get("SPARK_CONF_DIR") or f"{home}/conf",
        f"{home}/jars/*",
        *filter(None, map(variables.get, ("SPARK_CLASSPATH", "SPARK_EXTRA_CLASSPATH"))),
    )
    return [
        f"{variables['JAVA_HOME']}/bin/java",
        *(options[number] for number in sorted(options)),
        *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join(classes)),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", variables["SPARK_DRIVER_URL"]),
        *("--executor-id", variables["SPARK_EXECUTOR_ID"]),
        *("--cores", variables["SPARK_EXECUTOR_CORES"]),
        *("--app-id", variables["SPARK_APPLICATION_ID"]),
        *("--hostname", variables["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", variables["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", variables["SPARK_EXECUTOR_POD_NAME"]),
    ]


def main() -> None:
    """Become the executor or the command."""
    arguments = sys.argv[1:]
    command = executor(dict(os.environ)) if arguments[:1] == ["executor"] else arguments
    if not command:
        sys.exit("The image needs an argument: executor, or a command to run.")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
