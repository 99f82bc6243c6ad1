package ottla;

import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.util.Collections;

/** Keys and certificates in a form that the broker reads: it has no JKS. */
final class KeyStores {
    private KeyStores() {
    }

    /** Write a keystore or a truststore as PKCS12, all of it under the password of the store. */
    static void convert(String file, String type, String password, String keyPassword, Path target) throws Exception {
        char[] secret = password.toCharArray();
        KeyStore source = KeyStore.getInstance(type);
        try (InputStream stream = Files.newInputStream(Path.of(file))) {
            source.load(stream, secret);
        }
        KeyStore copy = KeyStore.getInstance("PKCS12");
        copy.load(null, secret);
        for (String alias : Collections.list(source.aliases())) {
            if (source.isKeyEntry(alias)) {
                Key key = source.getKey(alias, (keyPassword == null ? password : keyPassword).toCharArray());
                copy.setKeyEntry(alias, key, secret, source.getCertificateChain(alias));
            } else {
                copy.setCertificateEntry(alias, source.getCertificate(alias));
            }
        }
        try (OutputStream stream = Files.newOutputStream(target)) {
            copy.store(stream, secret);
        }
    }
}
