package ottla;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** A port whose connections reach a broker's SASL listener as one user: for tests whose `principal.builder.class` gives
 *  all clients of a listener the same principal, which is a Java class in the broker.
 *
 *  Each connection is logged in by SaslHandshake and SaslAuthenticate (PLAIN), and then its bytes are passed on. */
final class LoginProxy implements Closeable {
    private static final short SASL_HANDSHAKE = 17;
    private static final short SASL_AUTHENTICATE = 36;

    private final ServerSocket server = new ServerSocket();
    private final int brokerPort;
    private final String user;

    LoginProxy(int port, int brokerPort, String user) throws IOException {
        this.brokerPort = brokerPort;
        this.user = user;
        server.setReuseAddress(true);
        server.bind(new InetSocketAddress(port));
        start(this::accept);
    }

    private void accept() {
        try {
            while (true) {
                Socket client = server.accept();
                start(() -> connect(client));
            }
        } catch (IOException closed) {
            // The broker was stopped.
        }
    }

    private void connect(Socket client) {
        try (client; Socket broker = new Socket("localhost", brokerPort)) {
            client.setTcpNoDelay(true);
            broker.setTcpNoDelay(true);
            login(broker);
            start(() -> pass(broker, client));
            pass(client, broker);
        } catch (IOException ended) {
            // The client sees that its connection is closed.
        }
    }

    private static void pass(Socket from, Socket to) {
        try {
            InputStream input = from.getInputStream();
            OutputStream output = to.getOutputStream();
            byte[] buffer = new byte[65536];
            for (int length = input.read(buffer); length >= 0; length = input.read(buffer)) {
                output.write(buffer, 0, length);
            }
        } catch (IOException ended) {
            // Both are closed.
        }
        try {
            from.close();
            to.close();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private void login(Socket broker) throws IOException {
        byte[] mechanism = "PLAIN".getBytes(StandardCharsets.UTF_8);
        ask(broker, SASL_HANDSHAKE, (short) 1, ByteBuffer.allocate(2 + mechanism.length).putShort((short) mechanism.length).put(mechanism));
        byte[] token = ("\0" + user + "\0" + password(user)).getBytes(StandardCharsets.UTF_8);
        ask(broker, SASL_AUTHENTICATE, (short) 0, ByteBuffer.allocate(4 + token.length).putInt(token.length).put(token));
    }

    private static void ask(Socket broker, short api, short version, ByteBuffer body) throws IOException {
        DataOutputStream output = new DataOutputStream(broker.getOutputStream());
        ByteBuffer request = ByteBuffer.allocate(14 + body.position()).putInt(10 + body.position());
        request.putShort(api).putShort(version).putInt(0).putShort((short) -1).put(body.flip());
        output.write(request.array());
        DataInputStream input = new DataInputStream(broker.getInputStream());
        ByteBuffer answer = ByteBuffer.wrap(input.readNBytes(input.readInt()));
        if (answer.getShort(4) != 0) {
            throw new IOException("the broker does not know the user of the proxy: error " + answer.getShort(4));
        }
    }

    static String password(String user) {
        return user + "-secret";
    }

    private static void start(Runnable run) {
        Thread thread = new Thread(run, "login proxy");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}
