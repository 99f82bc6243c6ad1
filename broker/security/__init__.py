"""Who a client is, what the client may do, and how much: authentication, TLS, the authorizer, and quotas."""
