"""Graphs with their gated data, one file per family, each returning a `Task(graph, data, ...)`:
hierarchy and routing (N Fig. 4), xor, margins, contexts, sharing, views, images.

Floor 4: may import from floors 0-3.
"""
