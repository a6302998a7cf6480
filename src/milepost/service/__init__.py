"""The service: configuration, processes and the command line."""
