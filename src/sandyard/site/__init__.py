"""The published files: what people, agents and crawlers read about prices, the same bytes for the same input."""
