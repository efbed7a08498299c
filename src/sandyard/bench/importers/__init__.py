"""Results of other projects, read as trials of a run of ours."""
