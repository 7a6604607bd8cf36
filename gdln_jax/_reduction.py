"""The reduction: gradient flow restricted to aligned frames, `tau db_e/dt = -dl/db_e`, with the
certificate of its exactness (N Eq. 7-10 and its errata E4, E5; H's race reduction).

May import from floors 0-2; never from `_flow`, `_descent`, `exact` or `_times`.
"""
