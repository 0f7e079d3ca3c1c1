import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.hadoop.HadoopCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * Iceberg's REST catalog on loopback, for trials and tests.
 *
 * <p>Arguments: the folder of its tables, the port, and a file that is written once it answers. The
 * tables outlive it: behind the protocol is a Hadoop catalog, whose commits are atomic on a local
 * disk. Ends with SIGTERM.
 */
public final class TrialCatalog {
  private TrialCatalog() {}

  public static void main(String[] arguments) throws Exception {
    HadoopCatalog tables = new HadoopCatalog();
    tables.setConf(new Configuration());
    tables.initialize("trial", Map.of(CatalogProperties.WAREHOUSE_LOCATION, arguments[0]));
    ServletContextHandler handler = new ServletContextHandler();
    handler.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(tables))), "/*");
    Server server = new Server(new java.net.InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[1])));
    server.setHandler(handler);
    server.start();
    Path ready = Path.of(arguments[2]);
    Path fresh = Files.writeString(ready.resolveSibling(ready.getFileName() + ".new"), "ready\n");
    Files.move(fresh, ready, StandardCopyOption.ATOMIC_MOVE);
    server.join();
  }
}
