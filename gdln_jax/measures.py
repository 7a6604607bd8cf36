"""What is read off trained networks: zero-shot error by route, representational similarity,
alignment of singular vectors, conserved quantities (E8), mode strengths, empirical NTK, MDS.

Floor 4: may import from floors 0-3. Arrays in, arrays out; no pictures here.
"""
