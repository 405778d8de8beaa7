"""Clustering aggregation: k-means, DBSCAN and single linkage, one consensus by way of a QPU."""
