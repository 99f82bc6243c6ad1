// Prints every broker, topic and group setting of the Apache Kafka on the class path, as kafka_settings.tsv has them.
//
//     java -cp 'KAFKA/libs/*' config/KafkaSettings.java > config/kafka_settings.tsv
//
// KAFKA/libs is the `libs` directory of a Kafka distribution. Java 17 or later compiles this file by itself.
// Kafka's own objects are asked, not its pages: what a running broker checks its settings against.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KafkaSettings {
    public static void main(String[] arguments) {
        System.out.println("# Every setting of Apache Kafka " + AppInfoParser.getVersion()
            + ". Printed by: java -cp 'KAFKA/libs/*' config/KafkaSettings.java > config/kafka_settings.tsv");
        System.out.println(
            "# scopes 'internal' (of the broker) and 'internal group': Kafka does not document them; 'quota': of replication, of which a broker tells no default; synonyms: broker settings, the strongest first");
        System.out.println("scope\tname\ttype\tdefault\tallowed\tchangeable\tsensitive\tsynonyms");
        print("broker", AbstractKafkaConfig.CONFIG_DEF, false);
        print("topic", LogConfig.configDefCopy(), false);
        print("group", GroupConfig.CONFIG_DEF, false);
        print("internal", AbstractKafkaConfig.CONFIG_DEF, true);
        print("internal group", GroupConfig.CONFIG_DEF, true);
        print("quota", QuotaConfig.brokerQuotaConfigs(), false);
    }

    private static void print(String scope, ConfigDef definitions, boolean internal) {
        for (Map.Entry<String, ConfigDef.ConfigKey> entry : new TreeMap<>(definitions.configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            if (key.internalConfig != internal)
                continue;
            System.out.println(String.join("\t", scope, key.name, key.type.name(), scope.equals("quota") ? "null" : defaultOf(key), allowed(key),
                changeable(scope, key.name), key.type == ConfigDef.Type.PASSWORD ? "sensitive" : "",
                String.join(", ", synonyms(scope, key.name))));
        }
    }

    private static String changeable(String scope, String name) {
        if (scope.equals("topic") || scope.endsWith("group"))
            return "dynamic";
        if (!DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS.contains(name))
            return "read-only";
        Properties one = new Properties();
        one.put(name, "");
        return DynamicBrokerConfig.perBrokerConfigs(one).isEmpty() ? "dynamic" : "per-broker";
    }

    private static String defaultOf(ConfigDef.ConfigKey key) {
        if (key.defaultValue == ConfigDef.NO_DEFAULT_VALUE)
            return "(required)";
        return String.valueOf(key.defaultValue);
    }

    private static String allowed(ConfigDef.ConfigKey key) {
        return key.validator == null ? "" : key.validator.toString().replaceAll("\\s+", " ").trim();
    }

    private static List<String> synonyms(String scope, String name) {
        List<String> names = new ArrayList<>();
        if (scope.equals("topic"))
            Optional.ofNullable(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.get(name))
                .ifPresent(all -> all.forEach(synonym -> names.add(synonym.name())));
        else if (scope.endsWith("group"))
            GroupConfig.brokerSynonym(name).ifPresent(names::add);
        else {
            names.addAll(DynamicBrokerConfig.brokerConfigSynonyms(name, false));
            if (names.size() == 1)
                names.clear();
        }
        return names;
    }
}
