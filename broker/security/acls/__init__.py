"""ACLs: the entries of the metadata log that say who may do what, and Kafka's StandardAuthorizer that goes by them."""
