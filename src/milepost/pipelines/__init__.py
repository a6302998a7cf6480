"""The pipelines: Spark turns what everyone says and reports into cells, positions, reputations, an archive and proof."""
