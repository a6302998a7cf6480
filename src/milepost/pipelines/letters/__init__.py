"""Dead letters: records that pipelines cannot read, with the reason, for people."""
