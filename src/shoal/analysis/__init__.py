"""What Shoal measures and predicts: the simulator, probes of a machine, statistics of sampled subgraphs."""
