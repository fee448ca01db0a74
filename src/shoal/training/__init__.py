"""Training, evaluation on the full graph, metrics and checkpoints."""
