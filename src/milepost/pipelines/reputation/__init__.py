"""Reputation scores of endpoints: their claims checked against their moves and the reports of others."""
