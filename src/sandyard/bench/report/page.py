"""The report as one HTML page that needs nothing else: text, tables, and charts as SVG inside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from sandyard.bench.report.charts import charts
from sandyard.bench.report.markdown import to_markdown
from sandyard.bench.report.view import Report

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; font-size: 13px; }
th, td { border-bottom: 1px solid #ddd; padding: 0.2rem 0.6rem; text-align: left; vertical-align: top; }
th { background: #f6f6f6; position: sticky; top: 0; }
figure { margin: 1rem 0; overflow-x: auto; } figcaption { font-weight: 600; }
tr.fail td:first-child { color: #b00020; font-weight: 600; }
"""


def to_html(report: Report) -> str:
    """Return the page; its words are the Markdown's."""
    title = f"Benchmark {escape(report.manifest.run)}"
    figures = "\n".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in charts(report)
    )
    words = "\n".join(_blocks(to_markdown(report).split("\n")))
    head, _, rest = words.partition("<h2>Results</h2>")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>\n'
        f"{head}\n<h2>Charts</h2>\n{figures}\n<h2>Results</h2>{rest}\n</body></html>\n"
    )


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    """Turn the little Markdown that the report is written in into HTML; everything in it is escaped."""
    in_table = in_list = False
    for line in lines:
        is_row, is_item = line.startswith("| "), line.lstrip().startswith("- ")
        if in_table and not is_row:
            yield "</table>"
        if in_list and not is_item:
            yield "</ul>"
        if is_row:
            yield from _row(line, is_first=not in_table)
        elif is_item:
            yield ("" if in_list else "<ul>") + f"<li>{escape(line.lstrip()[2:])}</li>"
        elif line.startswith("#"):
            marks, _, text = line.partition(" ")
            yield f"<h{len(marks)}>{escape(text)}</h{len(marks)}>"
        elif line:
            yield f"<p>{escape(line.replace('**', ''))}</p>"
        in_table, in_list = is_row, is_item
    if in_table:
        yield "</table>"


def _row(line: str, *, is_first: bool) -> Iterator[str]:
    cells = [cell.strip().replace("\x00", "|") for cell in line.replace("\\|", "\x00").strip("| ").split("|")]
    if set(line) <= set("|- "):
        return
    tag = "th" if is_first else "td"
    yield (
        ("<table>" if is_first else "")
        + f'<tr class="{escape(cells[0])}">'
        + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        + "</tr>"
    )
