"""The exact small network behind a wide one (any start): closure, reduction, direct drawing."""
