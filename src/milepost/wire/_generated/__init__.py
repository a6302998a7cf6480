"""Written by `scripts/generate_wire.py`; never edited by hand."""
