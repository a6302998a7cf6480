"""The papers' evaluations, run on this machine: tables, figures, and the comparison with the papers (M34, D13, D14)."""
