// Says what Apache Kafka and Java read in texts, one line in, one line out; texts are in Base64, bytes in hexadecimal:
//     rules RULES SUBJECT     the user's name that ssl.principal.mapping.rules make of a certificate's subject
//     jaas LINE               the login module and the options of sasl.jaas.config
//     subject DER             a distinguished name as text
// Answers: "= TEXT...", "none" (no rule is for the subject), "refused" (when a broker starts), "fails" (when a client comes).
// Run by texts.py: java -cp 'libs/*' KafkaTexts.java

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class KafkaTexts {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            out.append(switch (words[0]) {
                case "rules" -> rules(text(words[1]), text(words[2]));
                case "jaas" -> jaas(text(words[1]));
                default -> subject(HexFormat.of().parseHex(words[1]));
            }).append('\n');
        }
        System.out.print(out);
    }

    static String rules(String rules, String subject) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (IllegalArgumentException error) {
            return "refused";
        }
        try {
            return said(List.of(mapper.getName(subject)));
        } catch (SslPrincipalMapper.NoMatchingRule none) {
            return "none";
        } catch (Exception error) {
            return "fails";
        }
    }

    static String jaas(String line) {
        List<String> parts = new ArrayList<>();
        try {
            AppConfigurationEntry entry = JaasContext.loadServerContext(new ListenerName("SASL_PLAINTEXT"), "PLAIN",
                Map.of("plain.sasl.jaas.config", new Password(line))).configurationEntries().get(0);
            parts.add(entry.getLoginModuleName());
            Map<String, String> options = new TreeMap<>();
            entry.getOptions().forEach((key, value) -> {
                if (key != null)  // of an option whose name is no word
                    options.put(key, String.valueOf(value));
            });
            options.forEach((key, value) -> { parts.add(key); parts.add(value); });
        } catch (RuntimeException error) {
            return "refused";
        }
        return said(parts);
    }

    static String subject(byte[] der) {
        try {
            return said(List.of(new X500Principal(der).getName()));
        } catch (RuntimeException error) {
            return "fails";
        }
    }

    static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    static String said(List<String> texts) {
        StringBuilder line = new StringBuilder("=");
        for (String text : texts)
            line.append(' ').append(Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8)));
        return line.toString();
    }
}
