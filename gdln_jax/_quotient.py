"""The symmetry quotient of a reduction: edges that start equal and receive equal gradients share
one variable, `tau |c| dx_c/dt = -dl/dx_c`. Every rate factor of the papers (1/M in N Eq. 13,
sqrt(P)/M^2 and P/M^2 in Eq. 16-17) is one over the size of a class.

May import from floors 0-2 and `_reduction`.
"""
