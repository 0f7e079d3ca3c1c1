package headgate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.servlet.Filter;
import javax.servlet.FilterChain;
import javax.servlet.FilterConfig;
import javax.servlet.ServletException;
import javax.servlet.ServletRequest;
import javax.servlet.ServletResponse;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;

/**
 * Rejects requests to the Spark UI that have no token signed with the driver's key.
 *
 * Spark has such a filter (JWSFilter) since 4.0; this one has the same parameter and rejects at
 * least the same requests. A token must be signed with HS256 (RFC 7515) and must expire.
 */
public class UiFilter implements Filter {
    private static final String PREFIX = "Bearer ";
    /** Bytes of the shortest key for HS256 (RFC 7518, 3.2). */
    private static final int KEY_BYTES = 32;

    private SecretKeySpec key;

    public void init(FilterConfig config) throws ServletException {
        String text = config.getInitParameter("secretKey");
        byte[] secret = Base64.getUrlDecoder().decode(text == null ? "" : text);
        if (secret.length < KEY_BYTES) {
            throw new ServletException("secretKey must have at least " + KEY_BYTES + " bytes");
        }
        key = new SecretKeySpec(secret, "HmacSHA256");
    }

    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        HttpServletResponse answer = (HttpServletResponse) response;
        answer.setHeader("Cache-Control", "no-cache, no-store, must-revalidate");
        if (isSigned(((HttpServletRequest) request).getHeader("Authorization"))) {
            chain.doFilter(request, response);
        } else {
            answer.sendError(HttpServletResponse.SC_FORBIDDEN);
        }
    }

    public void destroy() {
    }

    private boolean isSigned(String header) {
        if (header == null || !header.startsWith(PREFIX)) {
            return false;
        }
        String[] parts = header.substring(PREFIX.length()).split("\\.", -1);
        if (parts.length != 3) {
            return false;
        }
        try {
            Base64.Decoder decoder = Base64.getUrlDecoder();
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(key);
            byte[] expected = mac.doFinal((parts[0] + "." + parts[1]).getBytes("US-ASCII"));
            if (!MessageDigest.isEqual(expected, decoder.decode(parts[2]))) { // in constant time
                return false;
            }
            JsonNode head = new ObjectMapper().readTree(decoder.decode(parts[0]));
            JsonNode claims = new ObjectMapper().readTree(decoder.decode(parts[1]));
            double now = System.currentTimeMillis() / 1000.0;
            return "HS256".equals(((JsonNode) head.path("alg")).asText())
                && !head.has("crit") // an extension that must be understood
                && ((JsonNode) claims.path("exp")).asDouble() > now // 0 without it
                && ((JsonNode) claims.path("nbf")).asDouble() <= now;
        } catch (IOException broken) {
            return false;
        } catch (IllegalArgumentException broken) {
            return false;
        } catch (GeneralSecurityException broken) {
            return false;
        }
    }
}
