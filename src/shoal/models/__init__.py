"""The model zoo: convolutions over an Adjacency, and the stack that makes a GNN of them."""
