"""Ways to draw the frontier sampler's pops. Each file holds one; all draw the same law, at different cost."""
