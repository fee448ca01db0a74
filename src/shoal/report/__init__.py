"""Pages that show runs: facts of a run folder, charts of them, one HTML file."""
