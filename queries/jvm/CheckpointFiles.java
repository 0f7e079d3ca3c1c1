package headgate;

import java.io.IOException;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;
import org.apache.spark.unsafe.Platform;

/**
 * Writes each log entry of a checkpoint on S3 once, without a rename.
 *
 * Spark writes a temporary file and renames it. On S3 a rename is a copy and a deletion: slow, and
 * two drivers can both rename to one name. Here the store itself creates an object only if it is
 * new. On other file systems Spark's own choice writes: HDFS renames atomically, and an object that
 * HDFS creates could be seen empty.
 */
public class CheckpointFiles implements CheckpointFileManager {
    /** Part of the message if a second driver wrote an entry; failures are told apart by it. */
    private static final String SECOND_WRITER = "has been written by another driver";
    private static final String SETTING = "spark.sql.streaming.checkpointFileManagerClass";
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    /** Skips S3A's looks for folders and files of the same name. */
    private static final String DIRECTLY = "fs.s3a.create.performance";
    private static final String HEADER = "fs.s3a.create.header.";
    private static final String NAME = "headgate-writer";
    private static final String WRITER = UUID.randomUUID().toString();
    private static final AtomicLong STREAMS = new AtomicLong();

    private final CheckpointFileManager plain;
    private final FileSystem store; // null if Spark's own manager writes

    public CheckpointFiles(Path path, Configuration configuration) throws IOException {
        FileSystem files = path.getFileSystem(configuration);
        if (files.hasPathCapability(path, CONDITIONAL)) {
            store = files;
            plain = new FileSystemBasedCheckpointFileManager(path, configuration);
        } else {
            store = null;
            Configuration own = new Configuration(configuration);
            own.unset(SETTING);
            plain = CheckpointFileManager$.MODULE$.create(path, own);
        }
    }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(
            Path path, boolean overwriteIfPossible) {
        if (store == null) {
            return plain.createAtomic(path, overwriteIfPossible);
        }
        try {
            String writer = WRITER + "-" + STREAMS.incrementAndGet();
            FSDataOutputStreamBuilder builder = store.createFile(path);
            builder.create();
            builder.opt(DIRECTLY, true);
            if (overwriteIfPossible) {
                builder.overwrite(true);
            } else {
                builder.must(CONDITIONAL, true);
                builder.opt(HEADER + NAME, writer);
            }
            FSDataOutputStream out = (FSDataOutputStream) builder.build();
            return new Written(out, store, path, overwriteIfPossible ? null : writer);
        } catch (IOException error) {
            Platform.throwException(error); // Scala declares no exceptions
            return null;
        }
    }

    public FSDataInputStream open(Path path) {
        return plain.open(path);
    }

    public FileStatus[] list(Path path, PathFilter filter) {
        return plain.list(path, filter);
    }

    public FileStatus[] list(Path path) {
        return plain.list(path);
    }

    public void mkdirs(Path path) {
        plain.mkdirs(path);
    }

    public boolean exists(Path path) {
        return plain.exists(path);
    }

    public void delete(Path path) {
        plain.delete(path);
    }

    public boolean isLocal() {
        return plain.isLocal();
    }

    public Path createCheckpointDirectory() {
        return plain.createCheckpointDirectory();
    }

    public void close() {
        plain.close();
    }

    /** An object that exists once it has been closed, and not before. */
    private static final class Written extends CheckpointFileManager.CancellableFSDataOutputStream {
        private final FSDataOutputStream out;
        private final FileSystem store;
        private final Path path;
        private final String writer; // null if it may replace an object
        private boolean ended = false;

        Written(FSDataOutputStream out, FileSystem store, Path path, String writer) {
            super(out);
            this.out = out;
            this.store = store;
            this.path = path;
            this.writer = writer;
        }

        public synchronized void close() throws IOException {
            if (ended) {
                return;
            }
            ended = true;
            try {
                out.close();
            } catch (IOException error) {
                if (writer == null || !isWrittenByUs(error)) {
                    throw error;
                }
            }
        }

        /**
         * Return whether the object is ours although closing it failed: an answer can be lost, and
         * its repetition is then refused.
         */
        private boolean isWrittenByUs(IOException error) throws IOException {
            if (!store.isFile(path)) {
                return false;
            }
            byte[] found = null;
            try {
                found = store.getXAttr(path, "header." + NAME);
            } catch (IOException unknown) {
                error.addSuppressed(unknown);
            }
            String by = found == null ? null : new String(found, "UTF-8");
            if (writer.equals(by)) {
                return true;
            }
            String who = by == null ? "exists already" : SECOND_WRITER;
            FileAlreadyExistsException conflict =
                new FileAlreadyExistsException("The log entry " + path + " " + who + ".");
            conflict.addSuppressed(error); // not the cause: the innermost cause is what is shown
            throw conflict;
        }

        public synchronized void cancel() {
            if (ended) {
                return;
            }
            ended = true;
            try {
                out.abort();
            } catch (RuntimeException error) {
                return; // what was not completed does not exist
            }
        }
    }
}
