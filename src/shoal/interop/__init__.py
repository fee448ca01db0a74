"""Shoal's graphs and samplers behind the interfaces of other libraries."""
