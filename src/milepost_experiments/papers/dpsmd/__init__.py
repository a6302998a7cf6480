"""DPSMD's evaluation (D13, D14) and its moves between brokers (D8), on both logs."""
