"""Named graphs, generators, importers and downloads."""
