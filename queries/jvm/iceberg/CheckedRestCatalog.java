package headgate;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.rest.HTTPClient;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.rest.RESTClient;
import org.apache.iceberg.rest.RESTResponse;
import org.apache.iceberg.rest.RESTUtil;
import org.apache.iceberg.rest.credentials.Credential;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.LoadTableResponse;

/**
 * A REST catalog that uses no answer of its server before it has been accepted.
 *
 * A server configures its client: with the first answer, and with that for each table. Its keys can
 * name classes to load, addresses to send credentials to, and files to open, so a check after the
 * catalog or a table was loaded is too late. Here the check is between the HTTP client and all code
 * that uses its answers. The rules are in Python (`queries/runtime/catalogs.py`).
 *
 * The catalog's properties, with its secret, come from the driver and not from Spark's
 * configuration, which SQL can read and a session can change.
 */
public final class CheckedRestCatalog extends RESTCatalog {
    private static final Map DECLARED = new ConcurrentHashMap(); // name -> Declared
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Answers in which nothing names a class, an address, a credential or a file. */
    private static final Set PLAIN = new HashSet(Arrays.asList(new String[] {
        "OAuthTokenResponse", "ListTablesResponse", "ListNamespacesResponse",
        "GetNamespaceResponse", "CreateNamespaceResponse", "UpdateNamespacePropertiesResponse"}));

    private final Clients clients;

    /**
     * Declare a catalog before Spark loads it.
     *
     * @param judge returns why an answer, which it gets as JSON, is refused; "" if it is accepted
     */
    public static void declare(String name, Map properties, Function judge) {
        DECLARED.put(name, new Declared(new HashMap(properties), judge));
    }

    public CheckedRestCatalog() {
        this(new Clients());
    }

    private CheckedRestCatalog(Clients clients) {
        super(clients);
        this.clients = clients;
    }

    /** Connect to the declared catalog of this name, whatever the session's configuration says. */
    public void initialize(String name, Map ignored) {
        Declared declared = (Declared) DECLARED.get(name);
        if (declared == null) {
            throw new SecurityException("The catalog " + name + " is not declared.");
        }
        clients.judge = declared.judge;
        super.initialize(name, declared.properties);
    }

    private static final class Declared {
        private final Map properties;
        private final Function judge;

        Declared(Map properties, Function judge) {
            this.properties = properties;
            this.judge = judge;
        }
    }

    private static final class Clients implements Function {
        private Function judge = null;

        public Object apply(Object properties) {
            Map named = (Map) properties;
            HTTPClient client = HTTPClient.builder(named)
                .uri((String) named.get("uri"))
                .withHeaders(RESTUtil.configHeaders(named))
                .build();
            return checked(client, judge);
        }
    }

    private static RESTClient checked(RESTClient client, Function judge) {
        return (RESTClient) Proxy.newProxyInstance(
            CheckedRestCatalog.class.getClassLoader(), new Class[] {RESTClient.class},
            new Checked(client, judge));
    }

    private static final class Checked implements InvocationHandler {
        private final RESTClient client;
        private final Function judge;

        Checked(RESTClient client, Function judge) {
            this.client = client;
            this.judge = judge;
        }

        public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
            Object answer;
            try {
                answer = method.invoke(client, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
            if (answer instanceof RESTClient) { // withAuthSession
                return checked((RESTClient) answer, judge);
            }
            if (answer instanceof RESTResponse) {
                check((RESTResponse) answer);
            }
            return answer;
        }

        private void check(RESTResponse answer) throws Exception {
            String type = answer.getClass().getSimpleName().replace("Immutable", ""); // generated
            Map facts = new HashMap();
            facts.put("type", type);
            if (answer instanceof ConfigResponse) {
                facts.put("defaults", ((ConfigResponse) answer).defaults());
                facts.put("overrides", ((ConfigResponse) answer).overrides());
            } else if (answer instanceof LoadTableResponse) {
                describe((LoadTableResponse) answer, facts);
            } else if (PLAIN.contains(type)) {
                return;
            }
            String refusal = (String) judge.apply(JSON.writeValueAsString(facts));
            if (!"".equals(refusal)) {
                throw new SecurityException(refusal);
            }
        }

        private static void describe(LoadTableResponse answer, Map facts) {
            TableMetadata table = answer.tableMetadata();
            facts.put("config", answer.config());
            List credentials = new ArrayList();
            for (Iterator each = answer.credentials().iterator(); each.hasNext();) {
                credentials.add(((Credential) each.next()).config());
            }
            facts.put("credentials", credentials);
            facts.put("properties", table.properties());
            facts.put("location", table.location());
            Set folders = new HashSet();
            if (answer.metadataLocation() != null) { // null: a table that is being created
                folders.add(folder(answer.metadataLocation()));
            }
            for (Iterator each = table.snapshots().iterator(); each.hasNext();) {
                // null: an old snapshot, which lists its manifests itself
                String list = ((Snapshot) each.next()).manifestListLocation();
                folders.add(list == null ? "" : folder(list));
            }
            facts.put("folders", folders);
        }

        /** Return what is before a file's name: a table has thousands of files in one folder. */
        private static String folder(String file) {
            return file.substring(0, Math.max(0, file.lastIndexOf('/')));
        }
    }
}
