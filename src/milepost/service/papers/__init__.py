"""The papers' own evaluations, run on this machine: tables, figures, and how far ours is from theirs (M34, D13, D14)."""
