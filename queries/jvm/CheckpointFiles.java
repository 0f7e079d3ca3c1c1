package headgate;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/** Writes each log entry of a checkpoint once. */
public class CheckpointFiles extends FileSystemBasedCheckpointFileManager {
    public CheckpointFiles(Path path, Configuration configuration) {
        super(path, configuration);
    }
}
