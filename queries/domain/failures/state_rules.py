"""Rules for a checkpoint's contents: its logs, and the state of operators."""

from queries.domain.failures.categories import Category, FailureAdvice, FailureRule, Remedy, rule

ASYNC_PROGRESS_GAP = FailureAdvice(
    Category.INCOMPATIBLE,
    "The offset log has a gap: async progress tracking left it, or an entry was removed.",
    "If async progress tracking was just switched off, {async_off}. Otherwise start from a backup "
    "of the checkpoint, or {renew}.",
    Remedy.ASYNC_OFF,
)
_CONCURRENT = r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|_LEGACY_ERROR_TEMP_2207"
#: Spark 4.3 writes the commit before it checks, so each restart continues with the next batch.
PART_OF_BATCH = FailureAdvice(
    Category.USER_CODE,
    "The foreachBatch function did not read the whole batch, so the state of the rows it "
    "skipped was not saved: limit(), show(), take() and first() read only part of it, and so "
    "does a function that swallows an error. The batch still counts as committed.",
    "Change the function in {code} to read all rows of the batch (write it, or collect, count "
    "or persist it first). Then rewind to a batch before the first one that failed, or "
    "{renew}: the state lacks the skipped rows.",
    any_batch=True,
)
_NEWER = (
    "This part of the checkpoint was written by a later version of Spark, or with a setting "
    "that this version does not have.",
    "Run the query on that version, rewind to a batch before the upgrade, or {renew}.",
)
_IN_PROCESSOR = (
    "The query's stateful processor uses its state in a way that Spark does not allow.",
    "Fix what the root cause reports in {code}, then {restart}.",
)
_PROVIDER = (
    "The state store does not support this operator; only RocksDB does.",
    "For a new checkpoint, set spark.sql.streaming.stateStore.providerClass to "
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider; a checkpoint "
    "keeps the provider it was created with. {edit}, and {renew}.",
)
#: Both actions leave the files as they are, and lose nothing if only the checksum is wrong.
_CHECKSUM = (
    "If the file was written by a retried batch, its data is good and only the checksum "
    "belongs to the other attempt: set spark.sql.streaming.checkpoint.fileChecksum.enabled to "
    "false in the configuration, and {restart}. Otherwise check the disk; then rewind to an "
    "earlier batch, restore the file from a backup, or {renew}."
)
_SNAPSHOT = (
    "Spark rebuilds this state from an older snapshot and its changelog if RocksDB's changelog is "
    "on and spark.sql.streaming.stateStore.autoSnapshotRepair.enabled is true (the default). "
    "Check both settings, and {restart}. If that fails, rewind to an earlier batch, or {renew}."
)

CONDITIONS: tuple[FailureRule, ...] = (
    FailureRule(r"STATE_STORE_COMMIT_VALIDATION_FAILED", PART_OF_BATCH),
    rule(
        r"STREAMING_UNFINISHED_REPARTITION_DETECTED",
        Category.DAMAGED,
        "A repartition of the checkpoint's state was started but not finished. The query must "
        "not run on incomplete state.",
        "Run the repartition again with the same number of partitions until it finishes, then "
        "{start}. Or rewind to the last committed batch, or {renew}.",
    ),
    rule(
        r"STATE_REPARTITION_INVALID|STATE_REWRITER_INVALID",
        Category.CONFIGURATION,
        "The state of a checkpoint cannot be repartitioned or rewritten as the code requests.",
        "Fix what the root cause reports, then {start}.",
    ),
    rule(
        r"STDS_(?!INTERNAL)|\w*FINE_GRAINED_STATE_REPLAY",
        Category.USER_CODE,
        "The code reads state from a checkpoint that does not contain what it requests.",
        "Correct the options of the reader (path, batchId, operatorId, storeName…) in {code}, then "
        "{restart}.",
    ),
    rule(
        r"MALFORMED_STATE_IN_RATE_PER_MICRO_BATCH_SOURCE",
        Category.INCOMPATIBLE,
        "The offsets in the checkpoint do not match a rate source with these options.",
    ),
    rule(
        r"CANNOT_LOAD_STATE_STORE\.(INVALID_CHANGE_LOG_\w+_VERSION|CANNOT_READ_CHECKPOINT)"
        r"|INVALID_LOG_VERSION|STATE_STORE_UNKNOWN_INTERNAL_COLUMN_FAMILY",
        Category.INCOMPATIBLE,
        *_NEWER,
    ),
    rule(
        r"STATE_STORE_(STATE_SCHEMA_FILES|VALUE_SCHEMA_EVOLUTION)_THRESHOLD_EXCEEDED",
        Category.INCOMPATIBLE,
        "The schema of the state has changed more often than Spark can track.",
        "Increase the setting named in the root cause in the configuration, then {start}; or "
        "go back to the earlier schema.",
    ),
    rule(
        r"STATE_STORE_INVALID_CONFIG_AFTER_RESTART|STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE"
        r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
        r"|STATE_STORE_(KEY|VALUE|COLUMN_FAMILY)_SCHEMA_(NOT_COMPATIBLE|INCOMPATIBLE)"
        r"|STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION|STATE_STORE_\w+_SCHEMA_NOT_COMPATIBLE"
        r"|STATE_STORE_(KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
        r"|CANNOT_LOAD_STATE_STORE\.(KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
        r"|STREAM_STREAM_JOIN_INCOMPATIBLE_STATE_STORE_CONFIGS",
        Category.INCOMPATIBLE,
        "The state in the checkpoint was written by a different version of this query: keys, "
        "aggregates, operators or their types have changed.",
    ),
    rule(
        r"STATE_STORE_(CHECKPOINT_IDS_NOT_SUPPORTED|INVALID_PROVIDER|UNSUPPORTED_OPERATION"
        r"(_BINARY_INEQUALITY)?$)|UNSUPPORTED_FEATURE\.(STATE_STORE_|STORE_BACKEND_)",
        Category.CONFIGURATION,
        *_PROVIDER,
    ),
    rule(
        r"STATEFUL_PROCESSOR_|ILLEGAL_STATE_STORE_VALUE|TRANSFORM_WITH_STATE_SCHEMA_MUST"
        r"|STATE_STORE_(CANNOT_(CREATE|USE)|HANDLE_NOT|INCORRECT_NUM|NULL_TYPE|VARIABLE_SIZE"
        r"|UNSUPPORTED_OPERATION_ON)",
        Category.USER_CODE,
        *_IN_PROCESSOR,
    ),
    rule(
        r"EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED",
        Category.USER_CODE,
        "A stateful operator emits a row that is older than the watermark; the next operator "
        "would drop it.",
        "Change {code} to emit later event times, or remove the stateful operator after it; "
        "then {restart}.",
    ),
    rule(
        r"STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
        Category.DAMAGED,
        "The checkpoint has no state for a stateful operator of this query: its files are "
        "missing, or the query became stateful after the checkpoint was created.",
        "Go back to the previous definition, restore the files, or {renew}.",
    ),
    rule(
        r"STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
        Category.DAMAGED,
        "The checkpoint contains offsets, but its metadata file is missing.",
    ),
    rule(
        r"STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
        Category.DAMAGED,
        "The state folder contains files from another query, or from this query before its "
        "checkpoint was replaced.",
    ),
    rule(r"CANNOT_LOAD_STATE_STORE\.\w*OUT_OF_MEMORY", Category.CAPACITY),
    rule(
        r"CANNOT_LOAD_STATE_STORE\.AUTO_SNAPSHOT_REPAIR_FAILED",
        Category.DAMAGED,
        "No snapshot of this state can be loaded; Spark has tried the older ones too.",
    ),
    rule(
        r"CANNOT_LOAD_STATE_STORE\.(\w*MISSING\w*|\w*NOT_EXISTS|CANNOT_READ_STREAMING_STATE_FILE"
        r"|CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT|INVALID_CHECKPOINT_LINEAGE"
        r"|SNAPSHOT_PARTITION_ID_NOT_FOUND|UNEXPECTED_VERSION)",
        Category.DAMAGED,
    ),
    rule(
        r"CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
        Category.CORRUPTION,
        "A checkpoint file does not match the checksum written for it.",
        _CHECKSUM,
    ),
    rule(
        r"CANNOT_LOAD_STATE_STORE\.(CANNOT_READ_\w+_SIZE|UNEXPECTED_FILE_SIZE)"
        r"|STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"
        r"|STATE_STORE_UNEXPECTED_EMPTY_FILE_IN_ROCKSDB_ZIP",
        Category.CORRUPTION,
        "",
        _SNAPSHOT,
    ),
    rule(
        r"STREAM_STREAM_JOIN_INCONSISTENT_STATE",
        Category.CORRUPTION,
        "The state of a join is inconsistent: rows counted in its index are missing.",
    ),
    rule(
        r"STATE_STORE_(BASE_CHECKPOINT_ID_MISMATCH|INVALID_STAMP|INVALID_STATE_MACHINE_TRANSITION"
        r"|OPERATION_OUT_OF_ORDER)|STDS_INTERNAL_ERROR|INTERNAL_ERROR_TWS"
        r"|INTERNAL_ERROR_S(TATE|TREAM)\w*",
        Category.SPARK_FAULT,
    ),
    rule(
        r"STREAMING_CHECKPOINT_LOG_WRITE_FAILURE|FAILED_RENAME_TEMP_FILE"
        r"|CANNOT_LOAD_STATE_STORE\.UNRELEASED_THREAD_ERROR|CANNOT_LOAD_CHECKPOINT_FILE_MANAGER\.UNCAT"
        r"|CANNOT_LOAD_STATE_STORE|CANNOT_WRITE_STATE_STORE|STREAMING_ASYNC_OPERATION_FAILED",
        Category.STORAGE,
    ),
    rule(
        _CONCURRENT,
        Category.FENCED,
        "Two drivers were running on the checkpoint, and the other one has written this log "
        "entry: the store accepts each entry only once.",
        "No action is needed: the query is retried, and only the owner of the checkpoint "
        "continues.",
        text=r"has been written by another driver",  # queries/jvm/CheckpointFiles.java
    ),
    rule(_CONCURRENT, Category.OWNERSHIP),
    rule(
        r"MALFORMED_LOG_FILE|BATCH_METADATA_NOT_FOUND",
        Category.DAMAGED,
        "A log of the checkpoint, or of the file sink, has a gap or cannot be read.",
    ),
)

MESSAGES: tuple[FailureRule, ...] = (
    rule(
        r"Mismatch in unique ID on table file",
        Category.CORRUPTION,
        "A RocksDB file is not the one that its snapshot refers to: two attempts at a batch "
        "wrote it.",
        _SNAPSHOT,
    ),
    rule(
        r"\A(?=(?s:.*)None\.get)(?=(?s:.*)OfflineStateRepartitionUtils)",
        Category.DAMAGED,
        "The newest entry of the offset log lacks spark.sql.shuffle.partitions, which some "
        "Spark builds read without checking that it exists (SPARK-59662).",
        "Rewind to the last committed batch: the entry belongs to a batch that never "
        "committed and will be planned again.",
    ),
    FailureRule(r"batch -?\d+ (doesn't exist|not found in offset log)", ASYNC_PROGRESS_GAP),
    rule(
        r"There are \[\d+\] sources in the checkpoint",
        Category.INCOMPATIBLE,
        "The number of sources has changed since the checkpoint was created.",
    ),
    rule(
        r"Incomplete log file|Malformed log file|Failed to read log file",
        Category.DAMAGED,
        "A log file of the checkpoint is incomplete.",
    ),
    rule(
        r"\A(?=(?s:.*)NullPointerException)(?=(?s:.*)WatermarkTracker)",
        Category.INCOMPATIBLE,
        "The checkpoint was written by continuous processing, whose offsets contain no "
        "watermark, so micro-batches cannot continue from it.",
        "Switch back to the continuous trigger, then {start}; or {renew}.",
    ),
    rule(
        r"Multiple streaming queries are concurrently using"
        r"|terminated because another run of this query was started"
        r"|another instance of the same streaming query",
        Category.OWNERSHIP,
    ),
)
