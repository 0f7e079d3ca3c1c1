"""Define what counts as a secret, in a single table: by key name and by value shape.

The table is used for saves, messages, logs, events, Spark's own masks and the browser's drafts. The
patterns use syntax common to Python, Java and JavaScript, without capturing groups. Each row has an
example, a near miss that must not be masked, and pieces that would be slowest to search if a string
repeated them: tests check all three. Repetitions are bounded, and must not be able to start again
within what they repeat, so that search time is proportional to a string's length.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretName:
    """Keys whose values are secrets, case-insensitive."""

    pattern: str
    example: str
    near_miss: str
    hostile: tuple[str, ...] = ()  # pieces, in addition to the example's own name


@dataclass(frozen=True, slots=True)
class SecretValue:
    """Texts that are secrets anywhere: patterns for `before`, the secret, and `after`."""

    pattern: str
    example: str  # the secret is between ‹ and ›
    near_miss: str
    hostile: tuple[str, ...]  # pieces of the slowest texts
    before: str = ""
    after: str = ""


_KEYS = (
    "access|account|api|client[._-]?provided|encryption|keystore|master|private|shared|signing"
    "|storage"
)

NAMES = (
    SecretName("passw|passphrase", "kafka.ssl.truststore.password", "compass.width"),
    SecretName("pwd", "spark.jdbc.user.pwd", "upward.limit"),
    # At the end of a key only: es.net.http.auth.pass, dbpass.
    SecretName(
        "(?:(?<![a-z])|admin|auth|db|root|sql|store|user)pass(?![\\w.\\-])",
        "es.net.http.auth.pass",
        "bypass",
        ("dbpass", "-pass", "sqldbpass"),
    ),
    SecretName("cookie(?!s)", "http.header.cookie", "cookies.enabled"),
    SecretName("secret", "kafka.sasl.oauthbearer.client.secret", "sector.id"),
    SecretName("token(?!iz)", "spark.hadoop.fs.dropbox.token", "text.tokenizer"),
    SecretName(
        "credential(?!s?[._-]?provider)",
        "google.cloud.credentials",
        "fs.s3a.aws.credentials.provider",
    ),
    SecretName("jaas", "kafka.sasl.jaas.config", "kafka.sasl.mechanism"),
    SecretName(
        f"(?:{_KEYS})[._-]?key(?!provider|space|word)",
        "fs.azure.account.key.store.dfs.core.windows.net",
        "fs.azure.account.keyprovider.store.dfs.core.windows.net",
    ),
    SecretName(
        "auth[._-]?user[._-]?info", "schema.registry.basic.auth.user.info", "basic.auth.user.name"
    ),
    SecretName("connection[._-]?string", "eventhubs.connectionString", "connection.strategy"),
    # Azure's shared access signatures: fs.azure.sas.CONTAINER.ACCOUNT
    SecretName(
        "(?<![a-z0-9])sas(?![a-z0-9])", "fs.azure.sas.fixed.store", "kafka.sasl.kerberos", ("-sas",)
    ),
)

VALUES = (
    SecretValue(
        "[^\\s/@]+",
        "jdbc:x://user:‹hunter2›@host/db",
        "http://host:8080/a@b",
        ("://", "://:", "://a:a", ":a"),
        "://[^\\s/:@]*:",
        "@",
    ),
    SecretValue(
        "[A-Za-z0-9+/=._\\-]{12,}",
        "Authorization: Bearer ‹abcdefghijklmnop›",
        "Bearer of news",
        ("Bearer ", "Basic" + " " * 20, "Token a "),
        "\\b(?:Bearer|Basic|Token)\\s{1,20}",
    ),
    # Short values of Basic: base64 has digits, or a capital after a small letter; words do not.
    SecretValue(
        "(?=[A-Za-z0-9+/=]{4})(?=[A-Za-z+/]{0,256}(?:[0-9=]|[a-z][A-Z]))[A-Za-z0-9+/]{2,256}={0,2}",
        "proxy-authorization: Basic ‹dTpw›",
        "Basic auth is off",
        ("Basic ", "Basic a", "Basic " + "a" * 256),
        "\\b[Bb]asic\\s{1,20}",
    ),
    # Signed URLs: Azure's sig, Amazon's, Google's and CloudFront's signatures.
    SecretValue(
        "[^\\s&\"'<>,;)]{8,}",
        "https://a.blob.core.windows.net/c?sv=2024&sig=‹abc%2Fdef%3D›&se=2026",
        "https://host/?sigma=abcdefgh&X-Amz-Date=20260105T000000Z",
        ("?sig=", "&sig=a", "\\u0026sig=", "&X-Amz-Signature="),
        "(?:[?&;]|\\\\u0026)(?:sig|(?:X-(?:Amz|Goog)-)?Signature|X-(?:Amz|Goog)-Credential)=",
    ),
    # A PEM block, up to its end or, in a truncated log, to the end of the text.
    SecretValue(
        "(?:(?!-----)[\\s\\S]){1,16384}",
        "-----BEGIN RSA PRIVATE KEY-----‹\nMIIEpAIBAAKCAQEA\n›-----END RSA PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIE\n-----END CERTIFICATE-----",
        ("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----a", "-----BEGIN A ", "-"),
        "-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
    ),
    SecretValue(
        "\\b(?:AKIA|ASIA)[A-Z0-9]{16}\\b",
        "‹AKIAIOSFODNN7EXAMPLE›",
        "AKIA2026 ASIA-PACIFIC",
        ("AKIA", "-AKIA"),
    ),
    SecretValue(
        "\\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\\w{22,255}|glpat-[\\w\\-]{20,255})",
        "‹ghp_0123456789abcdefghijABCDEFGHIJ012345›",
        "ghp_short github_pat_x",
        ("ghp_", "-ghp_", "github_pat_", "-glpat-", "-github_pat_a"),
    ),
    SecretValue(
        "\\bx(?:ox[a-z]|app)-[A-Za-z0-9\\-]{10,255}",
        "‹xoxb-123456789012-abcdef›",
        "xoxb-1 xoxo-xoxo",
        ("xoxb-", "-xoxb-", "-xapp-a"),
    ),
    SecretValue(
        "[A-Za-z0-9/]{20,255}",
        "https://hooks.slack.com/services/‹T00000000/B00000000/XXXXXXXXXXXX›",
        "https://hooks.slack.com/services/",
        ("hooks.slack.com/services/", "/services/"),
        "hooks\\.slack(?:-gov)?\\.com/services/",
    ),
    SecretValue(
        "(?<![\\w\\-])eyJ[\\w\\-]{10,8192}\\.eyJ[\\w\\-]{10,8192}\\.[\\w\\-]{10,8192}",
        "‹eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N›",
        "eyJhbGciOiJIUzI1NiJ9.a.b",
        ("-eyJ", "eyJ", ".eyJaaaaaaaaaa", "eyJaaaaaaaaaa.eyJaaaaaaaaaa.a "),
    ),
    SecretValue(
        "\\bAIza[\\w\\-]{35}",
        "‹AIzaSyA0123456789abcdefghijklmnopqrstuv›",
        "AIzaShort",
        ("AIza", "-AIza"),
    ),
    SecretValue(
        "\\bdapi[0-9a-f]{32}\\b",
        "‹dapi0123456789abcdef0123456789abcdef›",
        "dapirate",
        ("dapi", "-dapi0"),
    ),
    # Hugging Face, and Stripe with its webhooks.
    SecretValue(
        "\\bhf_[A-Za-z0-9]{30,255}",
        "‹hf_abcdefghijABCDEFGHIJ0123456789abcd›",
        "hf_short hf_hub_download",
        ("hf_", "-hf_", "hf_a"),
    ),
    SecretValue(
        "\\b(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,255}",
        "‹" + "sk_" + "live_0123456789abcdefABCDEF01›",
        "sk_live_short risk_live_0123456789abcdefABCDEF01",
        ("sk_live_", "-rk_test_a", "whsec_"),
    ),
    # Last: the rest of a line, in which other rows' secrets may begin.
    SecretValue(
        "[^\\r\\n\"']{1,4096}",
        "Set-Cookie: ‹sid=31d4d96e407aad42; Path=/›",
        "Cookies: none",
        ("Cookie:", "Cookie: ", "Set-Cookie:\n", "Cookie:" + " " * 20 + "\n"),
        "\\b(?:[Ss]et-)?[Cc]ookie:\\s{0,20}",
    ),
)

#: The names as one pattern.
NAME = "|".join(one.pattern for one in NAMES)
#: The values as one pattern, including what is before and after them.
VALUE = "|".join(f"{one.before}{one.pattern}{one.after}" for one in VALUES)
