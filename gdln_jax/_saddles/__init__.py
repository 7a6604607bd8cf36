"""Order, times and plateaus of learning as the initial scale goes to 0, without an ODE in time."""
