"""Mercury's evaluation, which the paper planned and never did (M34)."""
