"""Settings: one TOML file, read strictly into frozen dataclasses."""
