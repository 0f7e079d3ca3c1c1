"""Define the demo on S3: a query with state whose checkpoint is in a bucket of the trial gateway.

Its keys are secrets in the files that `make s3` writes, bound to the application for the gateway
alone.
"""

from pathlib import Path

from examples.flights.definitions import APPLICATION, DemoApplication, DemoQuery, delays

SHARED = "flights-s3"
BUCKET = "s3a://headgate"
KEYS = ("file:s3-access-key", "file:s3-secret-key")


def applications(endpoint: str) -> list[DemoApplication]:
    """Return the application that has the connector and the keys, and may use the bucket."""
    spec = {
        **APPLICATION,
        "description": "A query with its checkpoint in an S3 bucket.",
        "connectors": ["s3"],
        "conf": {**APPLICATION["conf"], **store(endpoint, *KEYS)},
    }
    host = endpoint.partition("://")[2]
    return [DemoApplication(SHARED, spec, roots=[BUCKET], secrets={key: [host] for key in KEYS})]


def store(endpoint: str, access_key: str, secret_key: str) -> dict[str, str]:
    """Return the configuration for an S3 store; the keys can be references to secrets."""
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": access_key,
        "spark.hadoop.fs.s3a.secret.key": secret_key,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }


def queries(demo: Path) -> list[DemoQuery]:
    """Return the query; its input and output are below the `demo` folder."""
    name = "delays-on-s3"
    return [
        DemoQuery(
            name=name,
            application=SHARED,
            checkpoint=f"{BUCKET}/checkpoints/{name}",
            spec=delays(
                demo,
                name,
                "Flights and delays by minute, origin and carrier, as in flight-delays, with the "
                "checkpoint in an S3 bucket: compare how long each batch takes to commit.",
            ),
        )
    ]
