"""The archive: messages, reports and deliveries in Parquet files, by hour and cell, for a configured time."""
