"""The smallest edits of a source text that make a wrong scheme or schedule right, each proved."""
