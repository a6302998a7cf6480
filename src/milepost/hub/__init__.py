"""The hub: what is decided for many edges at once."""
