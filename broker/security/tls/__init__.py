"""TLS on the listeners of clients: keys and certificates, handshakes, and whose certificate a client has shown."""
