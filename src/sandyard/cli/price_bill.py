"""``sandyard price bill``: an estimate from four measured figures, on the terms of any price page."""

from __future__ import annotations

from typing import Annotated

import typer

from sandyard.cli.price_options import JsonFlag, print_json, to_exact
from sandyard.pricing.bill import BillInputs, estimate
from sandyard.pricing.meters import plain
from sandyard.pricing.present import money, table


def bill(
    *,
    requests_per_day: Annotated[str, typer.Option(metavar="N", help="Sandboxes created a day.")],
    mean_lifetime_sec: Annotated[str, typer.Option(metavar="S", help="From create to kill.")],
    active_cpu_fraction: Annotated[str, typer.Option(metavar="SHARE", help="Share of it in which the CPU works.")],
    vcpu: Annotated[str, typer.Option(metavar="N", help="Reserved.")],
    mem_gib: Annotated[str, typer.Option(metavar="GIB", help="Reserved.")],
    rate_per_vcpu_sec: Annotated[str, typer.Option(metavar="PRICE")],
    rate_per_gib_sec: Annotated[str, typer.Option(metavar="PRICE")],
    rate_per_gb_egress: Annotated[str, typer.Option(metavar="PRICE")] = "0",
    egress_mb_per_create: Annotated[str, typer.Option(metavar="MB")] = "0",
    rounding_sec: Annotated[str, typer.Option(metavar="S", help="1 by the second, 60 to the minute.")] = "1",
    min_billable_sec: Annotated[str, typer.Option(metavar="S", help="Floor for each create.")] = "0",
    bills_idle: Annotated[bool, typer.Option("--bills-idle/--active-only", help="Whether idle time is billed.")] = True,
    platform_fee_month: Annotated[str, typer.Option(metavar="PRICE")] = "0",
    days: Annotated[str, typer.Option(metavar="N")] = "30",
    as_json: JsonFlag = False,
) -> None:
    """Estimate a bill from four measured figures and the terms of any price page."""
    result = estimate(
        BillInputs(
            requests_per_day=to_exact("requests-per-day", requests_per_day),
            mean_lifetime_sec=to_exact("mean-lifetime-sec", mean_lifetime_sec),
            active_cpu_fraction=to_exact("active-cpu-fraction", active_cpu_fraction),
            vcpu=to_exact("vcpu", vcpu),
            mem_gib=to_exact("mem-gib", mem_gib),
            egress_mb_per_create=to_exact("egress-mb-per-create", egress_mb_per_create),
            rate_per_vcpu_sec=to_exact("rate-per-vcpu-sec", rate_per_vcpu_sec),
            rate_per_gib_sec=to_exact("rate-per-gib-sec", rate_per_gib_sec),
            rate_per_gb_egress=to_exact("rate-per-gb-egress", rate_per_gb_egress),
            rounding_sec=to_exact("rounding-sec", rounding_sec),
            min_billable_sec=to_exact("min-billable-sec", min_billable_sec),
            bills_idle=bills_idle,
            platform_fee_month=to_exact("platform-fee-month", platform_fee_month),
            days=to_exact("days", days),
        )
    )
    values = {name: getattr(result, name) for name in result.__dataclass_fields__}
    if as_json:
        print_json({name: plain(value) for name, value in values.items()})
        return
    rows = [(name.replace("_", " "), money(value)) for name, value in values.items()]
    typer.echo(table(("", ""), rows, frozenset({1})).lstrip("\n"))
