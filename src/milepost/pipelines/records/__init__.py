"""Records of the log as rows: messages, reports, deliveries, and what cannot be read of them."""
