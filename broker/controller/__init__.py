"""The controller: plans changes of the cluster, writes them into the metadata log, answers once they are durable."""
