"""DPSMD's own test (D13, D14) and its moves (D8), on both logs."""
