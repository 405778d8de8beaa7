"""Clustering aggregation: k-means, DBSCAN and linkage, combined to one consensus by a QPU."""
