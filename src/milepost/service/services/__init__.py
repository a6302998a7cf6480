"""Servers for development and tests: a real Kafka and a real ZooKeeper on loopback, got, started, watched and stopped."""
