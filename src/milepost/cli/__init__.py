"""The command line: a module for one or a few related subcommands; importing them stays light (no numpy, asyncio or ssl)."""
