"""The command line: one module per subcommand; importing them stays light (no numpy, asyncio or ssl)."""
