"""Lookback: many questions about the past, answered in one pass over the archive (T5, T17); and who was here."""
