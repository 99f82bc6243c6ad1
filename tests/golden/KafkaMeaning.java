// Says in JSON what a Kafka frame means, by Apache Kafka's own parser. One line in ("request HEX", or
// "response API_KEY VERSION HEX"), one line out. Run by capture.py: java -cp 'libs/*' KafkaMeaning.java

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.network.RequestConvertToJson;

public class KafkaMeaning {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            ByteBuffer frame = ByteBuffer.wrap(HexFormat.of().parseHex(words[words.length - 1]));
            System.out.println(words[0].equals("request") ? request(frame)
                    : response(frame, ApiKeys.forId(Integer.parseInt(words[1])), Short.parseShort(words[2])));
        }
    }

    static JsonNode request(ByteBuffer frame) {
        RequestHeader header = RequestHeader.parse(frame);
        AbstractRequest body = AbstractRequest.parseRequest(
                header.apiKey(), header.apiVersion(), new ByteBufferAccessor(frame)).request;
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        node.put("apiKey", header.apiKey().id);
        node.put("apiVersion", header.apiVersion());
        node.put("correlationId", header.correlationId());
        node.put("clientId", header.clientId());
        node.set("body", RequestConvertToJson.request(body));
        return node;
    }

    static JsonNode response(ByteBuffer frame, ApiKeys api, short version) {
        ResponseHeader header = ResponseHeader.parse(frame, api.responseHeaderVersion(version));
        AbstractResponse body = AbstractResponse.parseResponse(api, new ByteBufferAccessor(frame), version);
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        node.put("correlationId", header.correlationId());
        node.set("body", RequestConvertToJson.response(body, version));
        return node;
    }
}
