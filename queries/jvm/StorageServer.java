package headgate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;

/**
 * Serves Hadoop's file systems over a Unix socket: a line of JSON asks, a line answers.
 *
 * <p>Its configuration, with secrets, is the first line of its standard input. It ends when that
 * input ends, or when nobody has asked for as long as its second argument says, in seconds.
 */
public final class StorageServer {
    /** Requests that one call has in flight: S3A's own pool holds 96 connections. */
    private static final int AT_ONCE = 16;

    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Configuration configuration = new Configuration();
    private final ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
    private final AtomicInteger asking = new AtomicInteger();
    private volatile long askedAt = System.nanoTime();

    private StorageServer(JsonNode settings) {
        Iterator each = settings.fields();
        while (each.hasNext()) {
            Map.Entry entry = (Map.Entry) each.next();
            configuration.set((String) entry.getKey(), ((JsonNode) entry.getValue()).asText());
        }
    }

    public static void main(String[] arguments) throws Exception {
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        final StorageServer server = new StorageServer(JSON.readTree(in.readLine()));
        start(new Runnable() {
            public void run() {
                try {
                    while (in.read() >= 0) { }
                } catch (IOException gone) {
                    // Its end is our end, however it comes.
                }
                Runtime.getRuntime().halt(0);
            }
        });
        server.endIdle(Long.parseLong(arguments[1]));
        ServerSocketChannel listening = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        listening.bind(UnixDomainSocketAddress.of(arguments[0]));
        while (true) {
            server.serve(listening.accept());
        }
    }

    private static void start(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    private void endIdle(final long seconds) {
        start(new Runnable() {
            public void run() {
                try {
                    while (asking.get() > 0 || System.nanoTime() - askedAt < seconds * 1000000000L) {
                        Thread.sleep(1000L);
                    }
                } catch (InterruptedException end) {
                    // Nobody interrupts this thread but the end of the JVM.
                }
                Runtime.getRuntime().halt(0);
            }
        });
    }

    private void serve(final SocketChannel channel) {
        start(new Runnable() {
            public void run() {
                try {
                    BufferedReader in = new BufferedReader(
                        new InputStreamReader(Channels.newInputStream(channel), "UTF-8"));
                    OutputStream out = Channels.newOutputStream(channel);
                    String line = in.readLine();
                    while (line != null) {
                        out.write((answer(line) + "\n").getBytes("UTF-8"));
                        out.flush();
                        line = in.readLine();
                    }
                    channel.close();
                } catch (IOException gone) {
                    // Whoever asked has left.
                }
            }
        });
    }

    private String answer(String line) throws IOException {
        ObjectNode told = JSON.createObjectNode();
        asking.incrementAndGet();
        try {
            JsonNode asked = JSON.readTree(line);
            String verb = asked.get("verb").asText();
            if (verb.equals("list")) {
                list(asked, told);
            } else if (verb.equals("read")) {
                read(asked, told);
            } else if (verb.equals("part")) {
                part(asked, told);
            } else if (verb.equals("write")) {
                write(asked);
            } else if (verb.equals("create")) {
                told.put("created", create(asked));
            } else if (verb.equals("copy")) {
                copy(asked, told);
            } else if (verb.equals("move")) {
                move(asked, told);
            } else if (verb.equals("delete")) {
                Path path = new Path(asked.get("path").asText());
                system(path).delete(path, true);
            } else {
                throw new IllegalArgumentException("unknown verb " + verb);
            }
        } catch (Throwable error) {
            told.removeAll();
            told.put("error", kind(error));
            told.put("message", first(error));
        } finally {
            askedAt = System.nanoTime();
            asking.decrementAndGet();
        }
        return JSON.writeValueAsString(told);
    }

    private FileSystem system(Path path) throws IOException {
        FileSystem found = path.getFileSystem(configuration);
        if (found instanceof LocalFileSystem) {
            return ((LocalFileSystem) found).getRawFileSystem(); // no checksum files beside ours
        }
        return found;
    }

    /** Lists what is below a path: [name, bytes, modified in ms, is a folder]. */
    private void list(JsonNode asked, ObjectNode told) throws Exception {
        Path root = new Path(asked.get("path").asText());
        FileSystem system = system(root);
        String prefix = system.makeQualified(root).toUri().getPath();
        int most = asked.get("most").asInt();
        ArrayNode found = told.putArray("found");
        told.put("more", false);
        try {
            boolean deep = asked.get("deep").asBoolean();
            RemoteIterator each = deep
                ? (RemoteIterator) system.listFiles(root, true)
                : (RemoteIterator) system.listStatusIterator(root);
            while (each.hasNext()) {
                FileStatus status = (FileStatus) each.next();
                if (found.size() == most) {
                    told.put("more", true);
                    return;
                }
                String name = status.getPath().toUri().getPath();
                ArrayNode one = found.addArray();
                one.add(name.substring(Math.min(name.length(), prefix.length() + 1)));
                one.add(status.getLen());
                one.add(status.getModificationTime());
                one.add(status.isDirectory());
            }
        } catch (FileNotFoundException gone) {
            // An empty folder of an object store does not exist.
        }
    }

    /** Reads small files below a path: [name, content in base 64, modified in ms]. */
    private void read(JsonNode asked, ObjectNode told) throws Exception {
        final Path root = new Path(asked.get("path").asText());
        final FileSystem system = system(root);
        final int most = asked.get("most").asInt();
        List work = new ArrayList();
        for (int i = 0; i < asked.get("names").size(); i++) {
            final String name = text(asked.get("names"), i);
            work.add(new Callable() {
                public Object call() throws Exception {
                    Path path = new Path(root, name);
                    try {
                        FileStatus status = system.getFileStatus(path);
                        if (status.getLen() > most) {
                            throw new TooLarge(path + " has more than " + most + " bytes");
                        }
                        byte[] content = content(system, status);
                        return new Object[] {name, content, status.getModificationTime()};
                    } catch (FileNotFoundException gone) {
                        return null;
                    }
                }
            });
        }
        ArrayNode found = told.putArray("found");
        Iterator each = pool.invokeAll(work).iterator();
        while (each.hasNext()) {
            Object[] one = (Object[]) ((Future) each.next()).get();
            if (one != null) {
                ArrayNode row = found.addArray();
                row.add((String) one[0]);
                row.add(Base64.getEncoder().encodeToString((byte[]) one[1]));
                row.add(((Long) one[2]).longValue());
            }
        }
    }

    /** Reads a part of a large file: content in base 64, and when it was modified in ms. */
    private void part(JsonNode asked, ObjectNode told) throws IOException {
        Path path = new Path(asked.get("path").asText());
        FileSystem system = system(path);
        byte[] content = new byte[asked.get("bytes").asInt()];
        try {
            FileStatus status = system.getFileStatus(path);
            FSDataInputStream in = system.open(path);
            try {
                in.readFully(asked.get("offset").asLong(), content, 0, content.length);
            } finally {
                in.close();
            }
            told.put("modified_ms", status.getModificationTime());
            told.put("content", Base64.getEncoder().encodeToString(content));
        } catch (FileNotFoundException gone) {
            told.put("missing", true);
        }
    }

    private static byte[] content(FileSystem system, FileStatus status) throws IOException {
        FSDataInputStream in = system.open(status.getPath());
        try {
            return in.readAllBytes();
        } finally {
            in.close();
        }
    }

    private void write(JsonNode asked) throws IOException {
        Path path = new Path(asked.get("path").asText());
        FSDataOutputStream out = system(path).create(path, true);
        out.write(Base64.getDecoder().decode(asked.get("content").asText()));
        out.close();
    }

    /** Creates a file unless it exists; returns whether it was created. */
    private boolean create(JsonNode asked) throws IOException {
        Path path = new Path(asked.get("path").asText());
        FileSystem system = system(path);
        FSDataOutputStreamBuilder builder = system.createFile(path);
        builder.recursive();
        if ("s3a".equals(system.getUri().getScheme())) {
            builder.overwrite(true);
            builder.must(CONDITIONAL, true);
        } else {
            builder.overwrite(false);
        }
        try {
            FSDataOutputStream out = (FSDataOutputStream) builder.build();
            out.write(Base64.getDecoder().decode(asked.get("content").asText()));
            out.close();
            return true;
        } catch (FileAlreadyExistsException taken) {
            return false;
        } catch (IOException error) {
            // S3A's name for a precondition that failed, a class that comes with the connector; and
            // HDFS's for a file that another client is writing.
            String name = error.getClass().getName();
            if (error instanceof RemoteException) {
                name = ((RemoteException) error).getClassName();
            }
            if (name.endsWith(".RemoteFileChangedException")
                || name.endsWith(".AlreadyBeingCreatedException")) {
                return false;
            }
            throw error;
        }
    }

    /** Copies files between two folders of any kind, with their times where they can be set. */
    private void copy(JsonNode asked, ObjectNode told) throws Exception {
        final Path from = new Path(asked.get("from").asText());
        final Path to = new Path(asked.get("to").asText());
        final FileSystem source = system(from);
        final FileSystem target = system(to);
        List work = new ArrayList();
        for (int i = 0; i < asked.get("names").size(); i++) {
            final String name = text(asked.get("names"), i);
            work.add(new Callable() {
                public Object call() throws Exception {
                    Path path = new Path(from, name);
                    try {
                        return Long.valueOf(copied(source, path, target, new Path(to, name)));
                    } catch (FileNotFoundException gone) {
                        return name;
                    }
                }
            });
        }
        long bytes = 0L;
        int files = 0;
        ArrayNode missing = told.putArray("missing");
        Iterator each = pool.invokeAll(work).iterator();
        while (each.hasNext()) {
            Object one = ((Future) each.next()).get();
            if (one instanceof Long) {
                bytes = bytes + ((Long) one).longValue();
                files = files + 1;
            } else {
                missing.add((String) one);
            }
        }
        told.put("bytes", bytes);
        told.put("files", files);
    }

    private static long copied(FileSystem source, Path path, FileSystem target, Path to)
        throws IOException {
        FileStatus status = source.getFileStatus(path);
        FSDataInputStream in = source.open(path);
        try {
            FSDataOutputStream out = target.create(to, true);
            in.transferTo(out);
            out.close();
        } finally {
            in.close();
        }
        if ("file".equals(target.getUri().getScheme())) {
            target.setTimes(to, status.getModificationTime(), -1L);
        }
        return status.getLen();
    }

    /** Moves files between two folders of one file system; those that are gone are skipped. */
    private void move(JsonNode asked, ObjectNode told) throws Exception {
        final Path from = new Path(asked.get("from").asText());
        final Path to = new Path(asked.get("to").asText());
        final FileSystem system = system(from);
        List work = new ArrayList();
        for (int i = 0; i < asked.get("names").size(); i++) {
            final String name = text(asked.get("names"), i);
            work.add(new Callable() {
                public Object call() throws Exception {
                    return Boolean.valueOf(moved(system, new Path(from, name), new Path(to, name)));
                }
            });
        }
        int files = 0;
        Iterator each = pool.invokeAll(work).iterator();
        while (each.hasNext()) {
            files = files + (((Boolean) ((Future) each.next()).get()).booleanValue() ? 1 : 0);
        }
        told.put("files", files);
    }

    private static boolean moved(FileSystem system, Path path, Path to) throws IOException {
        if (renamed(system, path, to)) {
            return true;
        }
        if (!system.exists(path)) {
            return false;
        }
        system.delete(to, false); // of a move that was interrupted: the original is still complete
        system.mkdirs(to.getParent());
        if (!renamed(system, path, to)) {
            throw new IOException(path + " cannot be moved to " + to);
        }
        return true;
    }

    /** Renames one file. File systems differ in whether they return false or throw. */
    private static boolean renamed(FileSystem system, Path path, Path to) throws IOException {
        try {
            return system.rename(path, to);
        } catch (FileNotFoundException gone) {
            return false;
        } catch (FileAlreadyExistsException taken) {
            return false;
        }
    }

    private static String text(JsonNode list, int place) {
        return ((JsonNode) list.get(place)).asText();
    }

    /** A file has more bytes than are read at once. */
    private static final class TooLarge extends IOException {
        TooLarge(String message) {
            super(message);
        }
    }

    private static String kind(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof AccessControlException
                || each instanceof java.nio.file.AccessDeniedException) {
                return "denied";
            }
            if (each instanceof FileNotFoundException) {
                return "missing";
            }
            if (each instanceof TooLarge) {
                return "too_large";
            }
        }
        return "failed";
    }

    private static String first(Throwable error) {
        Throwable each = error;
        while (each instanceof java.util.concurrent.ExecutionException && each.getCause() != null) {
            each = each.getCause();
        }
        String said = String.valueOf(each.getMessage()).split("\n| \\(Service: ")[0];
        return each.getClass().getSimpleName() + ": " + said;
    }
}
