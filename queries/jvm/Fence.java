package headgate;

import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Halts this JVM once a later start owns a checkpoint, or could own it without being seen.
 *
 * The watch is in the JVM, because the JVM is what writes to the checkpoint: a Python process that
 * is stopped, or whose threads wait for users' code, does not stop the watch. A JVM that was paused
 * asks again before it judges, and the store refuses the log entries that it writes until then
 * (CheckpointFiles).
 */
public final class Fence extends Thread {
    /** Failures in a row that count: a single one may be a pause of this JVM. */
    private static final int FAILURES = 3;
    /** Questions without an answer that may be pending at a time. */
    private static final int PENDING = 4;
    /** By scheme and authority. Our own, so that users' code cannot close them. */
    private static final Map FILES = new HashMap();

    private final FileSystem files;
    private final Path next;
    private final File heartbeat;
    private final long everyMs;
    private final long limitMs;
    private final long silenceMs;
    private final int takenOver;
    private final int cutOff;
    private final AtomicInteger pending = new AtomicInteger();
    private volatile boolean over = false;

    /**
     * Begin a watch.
     *
     * @param next the owner object of the next start
     * @param heartbeat a file whose time is that of the control plane's last heartbeat on this host
     * @param everyMs between two questions
     * @param limitMs for the answer to one
     * @param silenceMs of store and control plane, after which a later start is possible
     * @param takenOver exit code if the next object exists
     * @param cutOff exit code after silence
     */
    public static Fence begin(
            Configuration configuration, Path next, String heartbeat, long everyMs, long limitMs,
            long silenceMs, int takenOver, int cutOff) throws IOException {
        Fence fence = new Fence(
            files(next.toUri(), configuration), next, new File(heartbeat), everyMs, limitMs,
            silenceMs, takenOver, cutOff);
        fence.setDaemon(true);
        fence.start();
        return fence;
    }

    private Fence(
            FileSystem files, Path next, File heartbeat, long everyMs, long limitMs,
            long silenceMs, int takenOver, int cutOff) {
        super("headgate-fence");
        this.files = files;
        this.next = next;
        this.heartbeat = heartbeat;
        this.everyMs = everyMs;
        this.limitMs = limitMs;
        this.silenceMs = silenceMs;
        this.takenOver = takenOver;
        this.cutOff = cutOff;
    }

    private static FileSystem files(URI place, Configuration configuration) throws IOException {
        synchronized (FILES) {
            String key = place.getScheme() + "://" + place.getAuthority();
            FileSystem found = (FileSystem) FILES.get(key);
            if (found == null) {
                Configuration own = new Configuration(configuration);
                own.set("fs.s3a.attempts.maximum", "1"); // the next question is the retry
                own.set("fs.s3a.retry.limit", "1");
                found = FileSystem.newInstance(place, own);
                FILES.put(key, found);
            }
            return found;
        }
    }

    /** End the watch: the checkpoint has been released. */
    public void end() {
        over = true;
        interrupt();
    }

    public void run() {
        long answered = System.nanoTime();
        int failures = 0;
        while (!over) {
            try {
                boolean exists = ask();
                if (exists && !over) {
                    halt(takenOver, "a later start has taken over the checkpoint: " + next);
                }
                answered = System.nanoTime();
                failures = 0;
            } catch (Throwable error) { // including a thread that cannot be created
                failures++;
            }
            long silentMs = (System.nanoTime() - answered) / 1000000L;
            if (failures >= FAILURES && silentMs > silenceMs && isControlPlaneSilent() && !over) {
                halt(cutOff, "no answer about " + next + " and no heartbeat of the control plane");
            }
            try {
                Thread.sleep(everyMs);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }

    private boolean isControlPlaneSilent() {
        // A file that does not exist has the time 0.
        return System.currentTimeMillis() - heartbeat.lastModified() > silenceMs;
    }

    /** Return whether the next object exists; fail if there is no answer within the limit. */
    private boolean ask() throws Exception {
        if (pending.get() >= PENDING) {
            throw new IOException("earlier questions have no answer yet");
        }
        Question question = new Question(this);
        pending.incrementAndGet();
        try {
            question.start();
        } catch (Throwable error) {
            pending.decrementAndGet();
            throw new IOException(error);
        }
        question.join(limitMs);
        Boolean answer = question.answer;
        if (answer == null) {
            question.interrupt();
            throw new IOException("no answer in time");
        }
        return answer.booleanValue();
    }

    private static void halt(int code, String why) {
        try {
            // Not System.err, whose lock another thread may hold.
            FileOutputStream log = new FileOutputStream(FileDescriptor.err);
            log.write(("Headgate halts this JVM: " + why + "\n").getBytes("UTF-8"));
        } catch (IOException full) {
            // the exit code says it, too
        } finally {
            Runtime.getRuntime().halt(code);
        }
    }

    private static final class Question extends Thread {
        private final Fence fence;
        private volatile Boolean answer = null;

        Question(Fence fence) {
            super("headgate-fence-question");
            this.fence = fence;
            setDaemon(true);
        }

        public void run() {
            try {
                answer = Boolean.valueOf(fence.files.isFile(fence.next)); // on S3A, one HEAD
            } catch (Exception error) {
                return; // no answer
            } finally {
                fence.pending.decrementAndGet();
            }
        }
    }
}
