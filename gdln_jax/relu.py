"""The ReLU side (H): networks with rectified layers, their activation patterns, the gates found
from them, and how closely a gated linear network imitates them (H Sec. 3-6; E14, E22-E25).

Floor 4: may import from floors 0-3.
"""
