"""Recognize failures of Kubernetes: of its API server, of a driver's account, of executors' pods.

The texts are those of Spark 4.3's scheduler for Kubernetes and its client (fabric8 7.6), as seen on
a cluster; the client wraps what Java or the API server says.
"""

from queries.domain.failures.categories import Category, FailureRule, rule
from queries.domain.failures.store_rules import limited


def _of_client(causes: str) -> str:
    """Return a pattern for an error of the client with one of these causes, however far below."""
    return rf"\A(?=[\s\S]*KubernetesClientException)(?=[\s\S]*(?:{causes}))"


MESSAGES: tuple[FailureRule, ...] = (
    limited(
        _of_client("CertificateException|SSLHandshakeException|PKIX path"),
        "The driver does not trust the certificate of the Kubernetes API server.",
        "Check the address in the application's master, and the certificate authority in the "
        "host's kubeconfig (HEADGATE_KUBECONFIG) or spark.kubernetes.authenticate.caCertFile; "
        "then {start}.",
    ),
    limited(
        _of_client("Unauthorized|code=401"),
        "The Kubernetes API server rejected the account's token.",
        "Renew the token in the host's kubeconfig (HEADGATE_KUBECONFIG) or in the secret of "
        "spark.kubernetes.authenticate.oauthToken; then {start}.",
    ),
    rule(
        _of_client(
            "ConnectException|SocketTimeoutException|NoRouteToHostException|UnknownHostException"
            "|ConnectTimeoutException|HttpTimeoutException"
        ),
        Category.CONNECTION,
        "The Kubernetes API server cannot be reached.",
        "The query retries. Check the address in the application's master, and that the API "
        "server is running.",
    ),
    rule(
        r"KubernetesClientException[^\n]{0,600}exceeded quota|is forbidden: exceeded quota",
        Category.CAPACITY,
        "Kubernetes created no executor: the namespace's quota is used up.",
        "The query retries. Have the quota raised, end other pods of the namespace, or request "
        "fewer or smaller executors (spark.executor.instances, spark.executor.memory).",
    ),
    limited(
        r"KubernetesClientException[^\n]{0,600}is forbidden: User",
        "Kubernetes rejected the driver's service account: it may not create or list pods.",
        "Give the account a role for pods, services, config maps and volume claims of the "
        "namespace (spark.kubernetes.authenticate.* sets the account); then {start}.",
    ),
    rule(
        r"Max number of executor failures \(\d+\) reached|Executors of this driver kept failing",
        Category.PROCESS,
        "Spark ended the driver because its executors failed again and again.",
        "The query retries. The driver's log and the application's page show how they ended; "
        "executors that end at once often have an unsuitable image or too little memory.",
    ),
    limited(
        r"Set HEADGATE_DRIVER_ADDRESS",
        "Pods cannot reach this driver at the address by which its host reaches the API server.",
        "Set HEADGATE_DRIVER_ADDRESS to an address that pods can reach, and run the host's worker "
        "again with it; then {start}.",
    ),
    rule(
        r"ExecutorLostFailure[\s\S]{0,1500}OOMKilled",
        Category.MEMORY,
        "An executor's pod used more than its memory limit.",
        "The query retries. Raise spark.executor.memoryOverhead or spark.executor.memory in the "
        "application's configuration.",
    ),
    rule(
        r"ExecutorLostFailure[\s\S]{0,600}was deleted by a user or the framework",
        Category.PROCESS,
        "Executors' pods were deleted, for example because their nodes were drained.",
    ),
)
