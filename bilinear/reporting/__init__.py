"""Reports: frozen results, and their views as text, JSON and Markdown."""
