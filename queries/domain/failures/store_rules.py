"""Rules for stores and their security: S3, ABFS, GCS, HDFS, keys, Kerberos, YARN, Kubernetes.

The classes and codes come from hadoop-aws and hadoop-azure 3.4, Google's connector, the AWS SDK 2,
Hadoop's RPC client and Java's GSS. A store's error is somewhere in a chain of causes: Spark's
condition around it ("FAILED_READ_FILE") only says which file was being read or written.

What an admin must correct is retried up to the limit (LIMITED); credentials, quotas and clocks are
corrected outside Headgate, so these failures are retried indefinitely.
"""

import re
from dataclasses import replace

from queries.domain.failures.categories import RETRIES, Category, FailureAdvice, FailureRule, rule
from queries.domain.states import Policy

#: The account may not use the key with which the store encrypts.
KMS_DENIED = FailureAdvice(
    Category.CREDENTIALS,
    "The store encrypts with a KMS key that the account is not allowed to use. Its access to the "
    "bucket is not the reason.",
    f"{RETRIES} Have the account allowed to use the key, in its policy and in the key's: "
    "kms:GenerateDataKey to write, kms:Decrypt to read.",
)
KMS_UNUSABLE = FailureAdvice(
    Category.CONFIGURATION,
    "The KMS key with which the store encrypts is disabled, scheduled for deletion or does not "
    "exist.",
    "Have the key enabled again, or set another one (fs.s3a.encryption.key); data that was "
    "encrypted with the key can be read only with it. Then {start}.",
    policy=Policy.LIMITED,
)
_KEY = re.compile(r"arn:[\w-]{1,20}:kms:[\w-]{0,40}:\d{0,20}:(?:key|alias)/[\w/-]{1,300}")


def limited(pattern: str, meaning: str, way_out: str) -> FailureRule:
    """Return a rule for a mistake in a configuration that may be corrected outside Headgate."""
    return rule(pattern, Category.CONFIGURATION, meaning, way_out, policy=Policy.LIMITED)


_S3: tuple[FailureRule, ...] = (
    FailureRule(
        r"KMS\.\w*AccessDenied|not authorized to perform: kms:|\bkms:\w+ on resource", KMS_DENIED
    ),
    FailureRule(r"KMS\.\w*(Disabled|NotFound|InvalidState|InvalidKeyUsage)Exception", KMS_UNUSABLE),
    limited(
        r"AWSRedirectException|PermanentRedirect|AuthorizationHeaderMalformed"
        r"|IllegalLocationConstraintException|\(Service: S3, Status Code: 301",
        "The bucket is in another region than the one that the client uses.",
        "Set spark.hadoop.fs.s3a.endpoint.region to the bucket's region, or "
        "spark.hadoop.fs.s3a.bucket.BUCKET.endpoint.region if it applies to one bucket (Iceberg's "
        "S3FileIO: client.region of the catalog); then {start}.",
    ),
    limited(
        r"Status Code: 501|AWSUnsupportedFeatureException"
        r"|implies functionality that is not implemented",
        "The store does not implement a request that its client makes.",
        "Use a version of the store that implements it, or switch the feature off that the root "
        "cause names, such as fs.s3a.create.conditional.enabled; then {start}.",
    ),
    rule(
        r"SlowDown\b|AWSServiceThrottledException|reduce your request rate"
        r"|\(Service: S3, Status Code: 503",
        Category.CAPACITY,
        "The store throttles: it receives more requests than it allows for this part of the "
        "bucket.",
        "The query retries. Write fewer objects: a longer trigger interval, fewer shuffle "
        "partitions (each has its own state files), larger files; or spread them over several "
        "buckets.",
    ),
    rule(
        r"GlueException: [^\n]{0,200}Rate exceeded|Rate exceeded \(Service: \w+"
        r"|(Throttling|LimitExceeded|RequestLimitExceeded)Exception\b[^\n]{0,300}\(Service: \w+",
        Category.CAPACITY,
        "A service of the cloud, such as the catalog, throttles: it receives more requests than "
        "the account is allowed.",
        "The query retries. Use longer trigger intervals, so that tables are committed less "
        "often, or have the service's quota raised.",
    ),
    rule(
        r"ExpiredToken|(provided|security) token[^\n]{0,40} (has|is) expired"
        r"|token included in the request is expired",
        Category.CREDENTIALS,
        "The temporary credentials for the store have expired.",
        f"{RETRIES} Put new ones where the application's secrets are. To "
        "avoid this, use an instance's or service account's role, which the driver renews.",
    ),
    rule(
        r"is not authorized to perform: [\w-]+:\w+",
        Category.CREDENTIALS,
        "The account is not allowed to make a request of the cloud's: the root cause names both.",
        f"{RETRIES} Have the permission that the root cause names given to the account.",
    ),
    rule(
        # S3 by its SDK and by hadoop-aws.
        r"S3Exception: [^\n]{0,200}Status Code: 40[13]\b|InvalidAccessKeyId|SignatureDoesNotMatch"
        r"|NoAuthWithAWSException|NoAwsCredentialsException|CredentialInitializationException"
        r"|Unable to load credentials from any of the providers",
        Category.CREDENTIALS,
    ),
    rule(
        r"AWSClientIOException|AWSStatus500Exception|SdkClientException: [^\n]{0,200}"
        r"(Unable to execute HTTP request|UnknownHostException)"
        r"|Received an UnknownHostException when attempting to interact with a service",
        Category.CONNECTION,
        "The store did not respond, or its host name is unknown.",
        "No action is needed if the store recovers: the query keeps retrying. Otherwise check "
        "fs.s3a.endpoint, the region and the DNS of the host.",
    ),
)

_AZURE_AND_GOOGLE: tuple[FailureRule, ...] = (
    rule(
        r"ServerBusy|over the account limit|server is currently unable to receive requests",
        Category.CAPACITY,
        "The storage account throttles: its limit for traffic or requests is reached, possibly by "
        "other users of the account.",
        "The query retries. Write fewer and larger files, or have the account's limits raised.",
    ),
    rule(
        r"(GoogleJsonResponse|Storage)Exception: [^\n]{0,40}\b429\b|rateLimitExceeded"
        r"|exceeded the rate limit for object mutation",
        Category.CAPACITY,
        "The store throttles: it receives more requests for this bucket or object than it allows.",
        "The query retries. Use a longer trigger interval and fewer shuffle partitions.",
    ),
    rule(
        r"AuthorizationPermissionMismatch|AuthorizationFailure|InvalidAuthenticationInfo"
        r"|Server failed to authenticate the request|AADSTS\d+|AzureADAuthenticator"
        r"|This request is not authorized to perform this operation",
        Category.CREDENTIALS,
        "The Azure storage account rejected the key, SAS token or service principal, or it does "
        "not give access to this path.",
        f"{RETRIES} Renew or correct the secrets that the application's configuration refers to "
        "(fs.azure.account.key, fs.azure.sas.fixed.token, fs.azure.account.oauth2.client.secret), "
        "or have a role such as Storage Blob Data Contributor given to the principal.",
    ),
    rule(
        r"invalid_grant|TokenResponseException|Error (getting|refreshing) access token"
        r"|(GoogleJsonResponse|Storage)Exception: [^\n]{0,40}\b40[13]\b"
        r"|does not have storage\.\w+\.\w+ access",
        Category.CREDENTIALS,
        "Google Cloud rejected the service account's key, or the account does not have the "
        "permission that the root cause names.",
        f"{RETRIES} Have the permission given to the service account (such as Storage Object Admin "
        "on the bucket), or renew its key.",
    ),
    rule(
        r"ContainerBeingDeleted|(Path|Blob|Filesystem)AlreadyExists|Lease(Already|Id)\w+"
        r"|InternalOperationAbortError|PathConflict|conditionNotMet"
        r"|AbfsRestOperationException: [^\n]{0,200}, (409|412), "
        r"|(412 Precondition Failed|Status Code: 412)",
        Category.STORAGE,
        "Another writer changed or locked the same object at the same time, or the store was "
        "still deleting it.",
        "The query retries. If the failure persists, find out what else writes to this path.",
    ),
)

_MISSING: tuple[FailureRule, ...] = (
    limited(
        r"UnknownStoreException|NoSuchBucket|specified bucket does not exist|FilesystemNotFound"
        r"|specified (filesystem|container) does not exist|ContainerNotFound",
        "The bucket or container does not exist.",
        "Create it, or correct its name in the path; then {start}.",
    ),
    rule(
        r"No FileSystem for scheme:? \"?(s3|s3n)\b",
        Category.CONFIGURATION,
        "Hadoop has no file system for s3://, only for s3a://.",
        "Write s3a:// in the path, and add the s3 connector to the application if it is missing; "
        "then {start}.",
    ),
    rule(
        r"No FileSystem for scheme|UnsupportedFileSystemException"
        r"|ClassNotFoundException: Class [\w.$]{1,200}FileSystem not found",
        Category.CONFIGURATION,
        "The driver has no file system for the scheme of a path.",
        "Add the connector of the store to the application, or correct the path; then {start}.",
    ),
)

_KERBEROS: tuple[FailureRule, ...] = (
    rule(
        r"RequestTimeTooSkewed|Clock skew too great|KRB_AP_ERR_SKEW|Request date header too old"
        r"|in a reasonable timeframe|difference between the request time and",
        Category.CREDENTIALS,
        "A clock is wrong: the time of the driver's or an executor's host differs too much from "
        "that of the store or the Kerberos server, which therefore rejects its requests. The "
        "credentials may be right.",
        "The query retries. Set the host's clock and keep it synchronized by NTP (chronyc tracking "
        "or timedatectl shows how far it is off).",
    ),
    limited(
        r"Server has invalid Kerberos principal|Failed to specify server's Kerberos principal"
        r"|principal name does NOT have the expected hostname"
        r"|Server not found in Kerberos database",
        "The server's Kerberos principal is not the one that the Hadoop configuration of this host "
        "expects.",
        "Correct dfs.namenode.kerberos.principal or yarn.resourcemanager.principal in the "
        "configuration in HADOOP_CONF_DIR, or the names that DNS returns for the server, which "
        "replace _HOST; then {start}.",
    ),
    limited(
        r"SIMPLE authentication is not enabled",
        "The cluster requires Kerberos, but the Hadoop configuration of this host does not use it.",
        "Set hadoop.security.authentication to kerberos in the configuration in HADOOP_CONF_DIR; "
        "then {start}.",
    ),
    rule(
        r"SecretManager\$InvalidToken|DELEGATION_TOKEN[^\n]{0,400}(can't be found|is expired)"
        r"|can't be found in cache",
        Category.CREDENTIALS,
        "The Hadoop cluster no longer knows the driver's delegation token: it expired, could not "
        "be renewed, or the cluster was restarted without it.",
        f"{RETRIES} For tokens that are renewed while a driver runs, set spark.kerberos.keytab and "
        "spark.kerberos.principal.",
    ),
    rule(
        r"Cannot (contact any|locate) KDC|Unable to locate KDC",
        Category.CONNECTION,
        "The Kerberos server (KDC) did not respond.",
        "The query retries. Check the KDC's address in krb5.conf (KRB5_CONFIG) and the network.",
    ),
    rule(
        # GSS's text also stands in Kafka's errors, whose rules come first.
        r"GSS initiate failed|GSSException|Failed to find any Kerberos tgt"
        r"|Client cannot authenticate via|KerberosAuthException|krb5LoginModule|Krb5LoginModule"
        r"|Unable to obtain password from user|Login failure for ",
        Category.CREDENTIALS,
        "The Hadoop cluster rejected the driver's Kerberos login: there is no valid ticket, or the "
        "keytab or its principal is wrong.",
        f"{RETRIES} Check the ticket or the keytab on the driver's host (klist, kinit -kt KEYTAB "
        "PRINCIPAL), and spark.kerberos.keytab and spark.kerberos.principal if they are set.",
    ),
)

_HADOOP: tuple[FailureRule, ...] = (
    rule(
        r"StandbyException|not supported in state standby",
        Category.CONNECTION,
        "The HDFS NameNode that the path names is on standby, so it does not answer.",
        "The query retries. Use the nameservice instead of a NameNode's host: "
        "hdfs://NAMESERVICE/…, with its NameNodes in the configuration in HADOOP_CONF_DIR "
        "(dfs.nameservices). The client then finds the active NameNode.",
    ),
    rule(
        r"SafeModeException|Name node is in safe mode",
        Category.CONNECTION,
        "HDFS is read-only: its NameNode is in safe mode, as after a start or when its disk is "
        "full.",
        "The query retries. The NameNode leaves safe mode once enough DataNodes have reported; if "
        "it does not, hdfs dfsadmin -safemode get and the NameNode's page show why.",
    ),
    rule(
        r"(DS|NS)QuotaExceededException|QuotaByStorageTypeExceededException"
        r"|ClusterStorageCapacityExceededException",
        Category.CAPACITY,
        "An HDFS folder has reached its quota for space or for the number of files.",
        "The query retries. Delete what is no longer needed below the folder that the root cause "
        "names, or have its quota raised (hdfs dfsadmin -setSpaceQuota, -setQuota).",
    ),
    rule(
        r"could only be (written|replicated) to \d+ |There are \d+ datanode\(s\) running"
        r"|BlockMissingException|Could not obtain block",
        Category.CAPACITY,
        "HDFS has no DataNode for a block: they are down, full, or cannot be reached from this "
        "host.",
        "The query retries. hdfs dfsadmin -report shows the DataNodes and their free space.",
    ),
    limited(
        r"submitted by user \S{1,200} to unknown queue|rejected by queue placement"
        r"|cannot submit applications? to queue|does not have permission to submit",
        "YARN rejected the application: its queue does not exist, or the account may not use it.",
        "Set spark.yarn.queue to a queue that the account may use; then {start}.",
    ),
)

MESSAGES: tuple[FailureRule, ...] = (*_KERBEROS, *_S3, *_MISSING, *_AZURE_AND_GOOGLE, *_HADOOP)


def detailed(advice: FailureAdvice, text: str) -> FailureAdvice:
    """Return the advice with the KMS key named in the store's message."""
    key = _KEY.search(text) if advice in (KMS_DENIED, KMS_UNUSABLE) else None
    return replace(advice, meaning=f"{advice.meaning} The key: {key[0]}.") if key else advice
