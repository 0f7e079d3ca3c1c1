import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS and YARN of one host in one JVM, for trials and tests.
 *
 * <p>Arguments: the folder of data and configuration, HDFS's port, and the memory of YARN's one
 * node in MB (0: HDFS alone). The last file to be written is conf/core-site.xml: it exists once
 * everything responds. Ends with SIGTERM, and with it the containers of YARN.
 */
public final class MiniHadoop {
  private MiniHadoop() {}

  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]).toAbsolutePath();
    int port = Integer.parseInt(arguments[1]);
    int memoryMb = Integer.parseInt(arguments[2]);
    Path conf = Files.createDirectories(folder.resolve("conf"));

    MiniDFSCluster hdfs = hdfs(folder.resolve("data"), port);
    if (memoryMb > 0) {
      MiniYARNCluster yarn = yarn(hdfs, memoryMb, folder);
      write(conf.resolve("yarn-site.xml"), addresses(yarn.getConfig()));
    }
    write(conf.resolve("core-site.xml"), Map.of("fs.defaultFS", hdfs.getURI().toString()));
    Thread.currentThread().join();
  }

  /** Start a name node and one data node, over the data of earlier starts if there is any. */
  private static MiniDFSCluster hdfs(Path data, int port) throws Exception {
    Configuration conf = new Configuration();
    conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, data.toString());
    // Isolated drivers run as other users of this host.
    conf.setBoolean("dfs.permissions.enabled", false);
    boolean first = !Files.exists(data.resolve("name-0-1/current/VERSION"));
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf).nameNodePort(port).numDataNodes(1).format(first).build();
    cluster.waitClusterUp();
    return cluster;
  }

  /** Start a resource manager and one node manager. */
  private static MiniYARNCluster yarn(MiniDFSCluster hdfs, int memoryMb, Path folder) {
    YarnConfiguration conf = new YarnConfiguration(hdfs.getConfiguration(0));
    conf.set("fs.defaultFS", hdfs.getURI().toString());
    // The capacity scheduler wants a file of queues.
    conf.set(
        YarnConfiguration.RM_SCHEDULER,
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
    conf.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 256);
    conf.setInt(YarnConfiguration.NM_PMEM_MB, memoryMb);
    conf.setInt(YarnConfiguration.NM_VCORES, 4);
    conf.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
    // A developer's disk is often fuller than the default of 90 %.
    conf.setFloat(YarnConfiguration.NM_MAX_PER_DISK_UTILIZATION_PERCENTAGE, 99);
    System.setProperty("test.build.data", folder.resolve("yarn").toString());
    MiniYARNCluster cluster = new MiniYARNCluster("headgate", 1, 1, 1);
    cluster.init(conf);
    cluster.start();
    // Its containers are processes of their own. HDFS needs no such care.
    Runtime.getRuntime().addShutdownHook(new Thread(cluster::stop));
    return cluster;
  }

  /**
   * Return what a client needs to know of YARN. The cluster's whole configuration names classes of
   * tests that Spark does not have.
   */
  private static Map<String, String> addresses(Configuration conf) {
    Map<String, String> found = new LinkedHashMap<>();
    for (String name : new String[] {"", ".scheduler", ".admin", ".webapp"}) {
      String key = "yarn.resourcemanager" + name + ".address";
      found.put(key, conf.get(key));
    }
    return found;
  }

  /** Replace a file of settings atomically. */
  private static void write(Path file, Map<String, String> settings) throws Exception {
    Configuration conf = new Configuration(false);
    settings.forEach(conf::set);
    Path fresh = file.resolveSibling(file.getFileName() + ".new");
    try (var out = Files.newBufferedWriter(fresh)) {
      conf.writeXml(out);
    }
    Files.move(fresh, file, StandardCopyOption.ATOMIC_MOVE);
  }
}
