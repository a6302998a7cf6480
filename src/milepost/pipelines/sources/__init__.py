"""Where pipelines read and write: a site's log, on Kafka by Spark's connector, on one machine by a data source of our own."""
