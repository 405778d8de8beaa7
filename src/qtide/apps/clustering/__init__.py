"""Clustering aggregation: a QPU combines k-means, DBSCAN and linkage into one consensus."""
