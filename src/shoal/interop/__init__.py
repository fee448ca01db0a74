"""PyG's interfaces over Shoal's graphs and samplers."""
