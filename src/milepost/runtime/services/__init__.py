"""Servers for development and tests: a real Kafka and ZooKeeper on loopback, downloaded, started, monitored and stopped."""
