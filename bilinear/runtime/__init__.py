"""Running plans on arrays."""
