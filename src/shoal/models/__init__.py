"""The model zoo: graph convolutions, and the GNN that stacks them."""
