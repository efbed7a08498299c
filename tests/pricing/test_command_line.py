"""``sandyard price``, ``catalog`` and ``site`` as a person and a program meet them."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from sandyard.catalog import Catalog
from sandyard.cli import catalog as catalog_commands
from sandyard.cli import price as price_commands
from sandyard.cli import site as site_commands
from sandyard.errors import SandyardError
from sandyard.pricing.workload import INPUTS

app = typer.Typer()
app.add_typer(price_commands.app, name="price")
app.add_typer(catalog_commands.app, name="catalog")
app.add_typer(site_commands.app, name="site")
ON = ["--on", "2026-11-30"]


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def _text(*arguments: str) -> str:
    result = _run(*arguments)
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.stdout


def _json(*arguments: str) -> Any:
    return json.loads(_text(*arguments, "--json"))


def _refusal(*arguments: str) -> SandyardError:
    result = _run(*arguments)
    assert isinstance(result.exception, SandyardError), result.output
    return result.exception


# -- price ------------------------------------------------------------------------------------------------------------


def test_the_table_names_every_product_and_marks_the_references(catalog: Catalog) -> None:
    lines = _text("price", *ON).splitlines()
    assert len(lines) == 1 + len(catalog)
    rows = {line.split()[0]: line for line in lines[1:]}
    assert rows.keys() == set(catalog.cards)
    marked = re.split(r"\s{2,}", rows["aws-lambda-microvm"])
    assert marked[:4] == ["aws-lambda-microvm", "ref", "7.20", "1.00x"]
    assert " ref " in rows["aws-ec2-t4g-nano"]
    assert "missing: which of two billing models" in rows["daytona"]


def test_people_and_programs_read_the_same_figures() -> None:
    answers = {item["product"]: item for item in _json("price", *ON)["quotes"]}
    assert answers["aws-lambda-microvm"]["total"].startswith("7.19711511111111111111111111")
    assert answers["upstash-box"]["total"] == "5.536870912"
    rows = {row["product"]: row for row in csv.DictReader(io.StringIO(_text("price", "--csv", *ON)))}
    assert {name: row["total"] for name, row in rows.items()} == {
        name: item["total"] or "" for name, item in answers.items()
    }
    for line in answers["aws-lambda-microvm"]["components"]:
        assert line["source"]["url"] == "https://aws.amazon.com/lambda/pricing/"
        assert line["source"]["read_on"] == "2026-09-04"


def test_every_input_is_a_flag() -> None:
    changed = {name: "1" if item.least <= 1 else str(item.least) for name, item in INPUTS.items()}
    flags = [part for name, value in changed.items() for part in (f"--{name.replace('_', '-')}", value)]
    assert _json("price", *ON, *flags)["workload"] == changed


@pytest.mark.parametrize(
    ("name", "text"),
    [("work.yaml", 'vcpu: "2"\nrunning_hours: 100\n'), ("work.toml", "vcpu = 2\nrunning_hours = 100.0\n")],
)
def test_a_file_holds_inputs_and_flags_win(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    work = _json("price", *ON, "--workload", str(tmp_path / name), "--vcpu", "4")["workload"]
    assert (work["vcpu"], work["running_hours"], work["memory_gib"]) == ("4", "100", "0.5")


def test_filters_narrow_the_table(catalog: Catalog) -> None:
    both = {item["product"] for item in _json("price", *ON, "--needs", "fork,ssh")["quotes"]}
    assert both == {
        card.id
        for card in catalog
        if {name for name in ("fork", "ssh") if name in card.features and card.features[name].value == "yes"}
        == {"fork", "ssh"}
    }
    firm = _json("price", *ON, "--evidence", "first-party")["quotes"]
    assert firm
    assert all(item["first_party"] and item["total"] for item in firm)
    assert _json("price", *ON, "--evidence", "verified")["quotes"] == []


def test_orders(catalog: Catalog) -> None:
    names = [item["product"] for item in _json("price", *ON, "--sort", "name")["quotes"]]
    assert names == sorted(catalog.cards)
    totals = [Decimal(item["total"]) for item in _json("price", *ON)["quotes"] if item["total"]]
    assert totals == sorted(totals)


def test_a_day_after_the_launch_prices_has_none() -> None:
    answers = {item["product"]: item for item in _json("price", "--on", "2026-12-23")["quotes"]}
    assert answers["prime-intellect-sandboxes"]["total"] is None


def test_a_region_is_used_where_it_is_named() -> None:
    answers = {item["product"]: item["variant"] for item in _json("price", *ON, "--region", "syd")["quotes"]}
    assert answers["fly-machines"] == "syd"
    assert "No card names the region 'atlantis'" in str(_refusal("price", "--region", "atlantis"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vcpu", "-1"], "vcpu -1 is less than"),
        (["--vcpu", "nan"], "not a finite number"),
        (["--vcpu", "many"], "'many' is not a number"),
        (["--running-hours", "9999"], "more than 744 h a month"),
        (["--on", "soon"], "'soon' is not a day"),
        (["--needs", "wings"], "No feature is called 'wings'"),
        (["--workload", "no-such-file.yaml"], "cannot be read"),
    ],
)
def test_bad_input_is_named_and_never_priced(arguments: list[str], said: str) -> None:
    result = _run("price", *arguments)
    assert said in str(result.exception)
    assert result.stdout == ""


def test_an_unknown_product_is_named() -> None:
    refusal = _refusal("price", "explain", "e3b")
    assert "No product is called 'e3b'" in str(refusal)
    assert refusal.hint is not None
    assert "Near it: e2b" in refusal.hint


def test_explain_shows_every_sum_source_and_doubt() -> None:
    text = _text("price", "explain", "aws-lambda-microvm", *ON)
    assert "0.25 vCPU x 200 h = 50 vCPU-Hours x 0.09969984 = 4.984992" in text
    assert "https://aws.amazon.com/lambda/pricing/ (audit, 2026-09-04)" in text
    assert "assumes: " in text
    assert "deciding: idle" in text
    assert "Is idle billed" in text


def test_explain_computes_the_axes_that_it_is_given_inputs_for() -> None:
    values = _json(
        "price", "explain", "e2b", *ON, "--create-latency-s", "2.5", "--peak-creates-per-s", "2"
    )  # fmt: skip
    figures = {item["axis"]: item["cost"] for item in values["axes"]["figures"]}
    assert Decimal(figures["warm pool"]) == 5 * 730 * Decimal("0.0585")
    assert values["axes"]["deciding"] == "warm pool"
    assert len(values["questions"]) == 4


def test_compare_puts_two_side_by_side() -> None:
    text = _text("price", "compare", "e2b", "modal-sandboxes", *ON)
    assert re.search(r"a month\s+11\.70\s+5\.95", text)
    assert re.search(r"memory_snapshots\s+yes\s+unknown", text)


def test_a_sweep_of_one_input_places_the_crossing() -> None:
    values = _json("price", "sweep", "e2b", "aws-lambda-microvm", "--x", "running-hours:1:400:5", *ON)
    assert len(values["totals"]["e2b"]) == 5
    assert [round(float(item["at"]), 6) for item in values["crossings"]] == [33.071799]


def test_a_sweep_of_two_inputs_is_a_map() -> None:
    values = _json("price", "sweep", "--x", "running_hours:1:700:3", "--y", "cpu_utilization:0:1:2", *ON)
    assert [len(row) for row in values["cheapest"]] == [3, 3]
    assert "running_hours" in _text(
        "price", "sweep", "--x", "running_hours:1:700:3", "--y", "cpu_utilization:0:1:2", *ON
    )


def test_sensitivity_ranks_inputs() -> None:
    assert _json("price", "sweep", "e2b", "--sensitivity", *ON)["e2b"][0]["input"] == "running_hours"


@pytest.mark.parametrize(
    "axis", ["running_hours", "running_hours:1:2", "moons:1:2:3", "vcpu:2:1:3", "vcpu:1:2:0", "vcpu:a:2:3"]
)
def test_a_bad_range_is_refused(axis: str) -> None:
    assert _refusal("price", "sweep", "e2b", "--x", axis, *ON).code in {"invalid-request", "invalid-workload"}


def test_bill_is_the_estimator() -> None:
    values = _json(
        "price", "bill", "--requests-per-day", "20000", "--mean-lifetime-sec", "90", "--active-cpu-fraction", "0.12",
        "--vcpu", "2", "--mem-gib", "4", "--egress-mb-per-create", "40", "--rate-per-vcpu-sec", "0.000014",
        "--rate-per-gib-sec", "0.0000045", "--rate-per-gb-egress", "0.05", "--platform-fee-month", "20",
    )  # fmt: skip
    assert values["total"] == "3675.875"
    assert (values["idle_cost"], values["rounding_tax"]) == ("2180.4", "828")


def test_a_trace_is_priced_for_one_and_for_all(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("sandbox,start,end,vcpu,memory_gib\na,0,205,4,8\n")
    assert "x 0.01486 = 0.019813333" in _text("price", "trace", str(path), "codesandbox-sdk", *ON)
    assert len(_json("price", "trace", str(path), *ON)["quotes"]) == len(catalog)
    path.write_text("sandbox,start,end,vcpu,memory_gib\na,205,0,4,8\n")
    assert "before it starts" in str(_refusal("price", "trace", str(path)))
    assert "neither .jsonl nor .csv" in str(_refusal("price", "trace", str(path.rename(tmp_path / "runs.txt"))))


# -- catalog ----------------------------------------------------------------------------------------------------------


def test_list_and_show(catalog: Catalog) -> None:
    assert [item["id"] for item in _json("catalog", "list")] == list(catalog.cards)
    text = _text("catalog", "show", "codesandbox-sdk")
    assert "0.01486 from 2025-07-03" in text
    assert "plan scale: Scale, fee 170 (fee)" in text
    assert "conflict: Credit price" in text
    assert _json("catalog", "show", "codesandbox-sdk")["meters"][0]["prices"][0]["price"] == "0.01486"


def test_check_passes_on_the_package_and_fails_with_file_and_line(tmp_path: Path) -> None:
    assert _run("catalog", "check").exit_code == 0
    (tmp_path / "acme.yaml").write_text("id: acme\nprice: 0.5\n")
    result = _run("catalog", "check", "--folder", str(tmp_path))
    assert result.exit_code == 1
    assert "products/acme.yaml:2: float: " in result.stdout


def test_check_fails_on_a_broken_invariant(tmp_path: Path, catalog: Catalog) -> None:
    for card in catalog:
        text = (files("sandyard") / "data" / "products" / f"{card.id}.yaml").read_text(encoding="utf-8")
        if card.id == "e2b":
            text = text.replace('price: "0.0000045"', 'price: "0.0000046"')
        (tmp_path / f"{card.id}.yaml").write_text(text)
    result = _run("catalog", "check", "--folder", str(tmp_path))
    assert result.exit_code == 1
    assert "products/e2b.yaml:0: example" in result.stdout


def test_diff_names_a_changed_price(tmp_path: Path, catalog: Catalog) -> None:
    text = (files("sandyard") / "data" / "products" / "boat.yaml").read_text(encoding="utf-8")
    (tmp_path / "boat.yaml").write_text(text.replace('price: "0.018"', 'price: "0.017"'))
    lines = _text("catalog", "diff", str(tmp_path)).splitlines()
    assert "boat meters.machine.prices.2026-09-28@small.price: 0.017 -> 0.018" in lines
    assert len(lines) == len(catalog)  # every other product is new


def test_features_are_yes_no_or_unknown(catalog: Catalog) -> None:
    said = _json("catalog", "features", "fork", "ssh")
    assert said["codesandbox-sdk"] == {"fork": "yes", "ssh": "no"}
    assert said["cognitora"] == {"fork": "unknown", "ssh": "unknown"}
    assert len(said) == len(catalog)
    assert "No feature is called 'wings'" in str(_refusal("catalog", "features", "wings"))


def test_the_schema_is_printed_as_it_is_kept() -> None:
    assert _text("catalog", "schema") == (files("sandyard") / "data" / "card.schema.json").read_text(encoding="utf-8")


# -- site -------------------------------------------------------------------------------------------------------------

URL = ["--base-url", "https://sandboxes.example"]


def test_the_site_is_the_same_bytes_each_time_and_a_stale_file_is_found(tmp_path: Path, catalog: Catalog) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        assert _run("site", "build", str(folder), *URL).exit_code == 0
    names = {str(path.relative_to(one)) for path in one.rglob("*") if path.is_file()}
    assert names == {
        "pricing.md", "pricing.txt", "llms.txt", "robots.txt", "sitemap.xml", "data/catalog.json",
        *(f"data/products/{product}.json" for product in catalog.cards),
    }  # fmt: skip
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)
    assert (one / "pricing.md").read_bytes() == (one / "pricing.txt").read_bytes()
    assert _run("site", "build", str(one), *URL, "--check").exit_code == 0
    (one / "llms.txt").write_text("old")
    (one / "data" / "products" / "e2b.json").unlink()
    found = _run("catalog", "check", "--site", str(one), *URL)
    assert found.exit_code == 1
    assert "llms.txt:0: stale: " in found.stdout
    assert _run("catalog", "check", "--site", str(other), *URL).exit_code == 0
    result = _run("site", "build", str(one), *URL, "--check")
    assert result.exit_code == 1
    assert result.stdout.split(":")[0] == "data/products/e2b.json"
    assert "llms.txt: stale" in result.stdout


def test_the_published_files_hold_what_they_promise(tmp_path: Path, catalog: Catalog) -> None:
    assert _run("site", "build", str(tmp_path), *URL).exit_code == 0
    pricing = (tmp_path / "pricing.md").read_text()
    assert "https://sandboxes.example/pricing.md" in pricing
    assert "4.984992" in pricing
    robots = (tmp_path / "robots.txt").read_text()
    assert robots.startswith("User-agent: *\nAllow: /\n")
    assert "Sitemap: https://sandboxes.example/sitemap.xml" in robots
    for crawler in ("GPTBot", "ClaudeBot", "PerplexityBot", "Google-Extended"):
        assert f"User-agent: {crawler}\nAllow: /" in robots
    product = json.loads((tmp_path / "data" / "products" / "codesandbox-sdk.json").read_text())
    evidence = product["feature_evidence"]
    assert evidence["fork"]["value"] == "yes"
    assert evidence["fork"]["source"]["url"] == "https://codesandbox.io/pricing"
    assert evidence["rust_sdk"] == {"value": "unknown", "source": None}
    data = json.loads((tmp_path / "data" / "catalog.json").read_text())
    assert len(data["products"]) == len(catalog)
    lambda_row = next(item for item in data["products"] if item["card"]["id"] == "aws-lambda-microvm")
    assert lambda_row["gross_usd_month"].startswith("7.197115111")
    sitemap = (tmp_path / "sitemap.xml").read_text()
    assert sitemap.count("<loc>https://sandboxes.example/") == len(catalog) + 2


def test_no_published_file_has_an_em_dash(tmp_path: Path) -> None:
    assert _run("site", "build", str(tmp_path), *URL).exit_code == 0
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert "\u2014" not in path.read_text(encoding="utf-8"), path


def test_an_address_without_a_scheme_is_refused(tmp_path: Path) -> None:
    assert "is not an address" in str(_refusal("site", "build", str(tmp_path), "--base-url", "example.org"))
