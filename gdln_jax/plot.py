"""Pictures on given axes: arrays in, `Axes` out, in one style (theory dashed, simulation solid,
trained blue, untrained orange, shared green; time t/tau, loss L).

Floor 5: may import matplotlib and floors 0-4.
"""
