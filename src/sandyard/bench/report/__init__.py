"""A run as something to read: Markdown, JSON, and one HTML page with its charts inside it."""

from sandyard.bench.report.data import to_json
from sandyard.bench.report.markdown import to_markdown
from sandyard.bench.report.page import to_html

__all__ = ["to_html", "to_json", "to_markdown"]
