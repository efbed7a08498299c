from __future__ import annotations

from decimal import Decimal

import pytest

from sandyard.catalog import Catalog
from sandyard.pricing import CANONICAL, Run, Trace, Workload
from sandyard.pricing.axes import NAMES, AxesInputs, axes, four_questions
from sandyard.pricing.errors import InvalidWorkloadError
from tests.pricing.near import is_near

D = Decimal
ALL = AxesInputs(
    create_latency_s=D("2.5"),
    peak_creates_per_s=D(2),
    build_memory_gib=D(4),
    build_share=D("0.1"),
    install_gib=D("0.1"),
)


def _costs(catalog: Catalog, product: str, workload: Workload = CANONICAL) -> dict[str, Decimal | None]:
    return {axis.name: axis.cost for axis in axes(catalog[product], workload, ALL).figures}


def test_seven_figures_of_a_product_billed_by_wall_clock(catalog: Catalog) -> None:
    costs = _costs(catalog, "e2b")
    assert tuple(costs) == NAMES
    assert costs["idle"] == D("5.85")  # half of the hours compute nothing: 100 x 0.0585
    assert costs["rounding"] == 0
    assert costs["warm pool"] == 5 * 730 * D("0.0585")  # 2.5 s x 2 a second, all month
    # one template of 4 GiB for 200 h, less a tenth of the hours there: 0.9 x 200 x 3.5 x 0.0162
    assert costs["memory ratchet"] == D("0.9") * 200 * D("3.5") * D("0.0162")
    assert costs["egress"] is None  # no price is published
    assert costs["snapshots"] == 0
    assert costs["caps"] == 150  # runs of 1.82 h are too long for Hobby


def test_seven_figures_of_a_product_billed_by_use(catalog: Catalog) -> None:
    costs = _costs(catalog, "cloudflare-sandbox")
    # idle: memory 4 GiB and disk 8 GB for 100 h; the CPU in use is the same
    assert costs["idle"] == 4 * 100 * D("0.009") + 8 * 100 * D("0.000252")
    assert costs["egress"] == D("0.1") * 60 * D("1.073741824") * D("0.025")
    assert costs["caps"] == 0


def test_rounding_is_the_difference_to_seconds(catalog: Catalog) -> None:
    work = Workload.of(vcpu=4, memory_gib=8, running_hours=100, creations=12000, resumes=0, suspended_hours=0)
    costs = _costs(catalog, "codesandbox-sdk", work)
    assert costs["rounding"] == 100 * D("0.2972")  # 30-second runs bill a minute


def test_lambda_keeps_and_moves_state(catalog: Catalog) -> None:
    costs = _costs(catalog, "aws-lambda-microvm")
    # 0.16 + 0.0111... + 0.535 + 0.186
    assert costs["snapshots"] is not None
    assert costs["snapshots"].quantize(D("0.000000001")) == D("0.892111111")


def test_the_largest_figure_decides(catalog: Catalog) -> None:
    result = axes(catalog["e2b"], CANONICAL, ALL)
    assert result.deciding is not None
    assert result.deciding.name == "warm pool"
    calm = axes(catalog["e2b"], CANONICAL)
    assert calm.deciding is not None
    assert calm.deciding.name == "caps"


def test_the_axes_of_recorded_runs_are_exact(catalog: Catalog) -> None:
    """Two runs on one Nano: 61 s with 30 CPU-seconds on 2 vCPU, and 119 s with 60."""
    size = {"vcpu": D(2), "memory_gib": D(4), "disk_gib": D(5)}
    us = 1_000_000
    trace = Trace(
        [
            Run(sandbox="a", start_us=0, end_us=61 * us, cpu_us=30 * us, **size),  # type: ignore[arg-type]
            Run(sandbox="b", start_us=0, end_us=119 * us, cpu_us=60 * us, **size),  # type: ignore[arg-type]
        ]
    )
    minute = D("0.1486") / 60
    figures = {axis.name: axis.cost for axis in axes(catalog["codesandbox-sdk"], trace, ALL).figures}
    assert is_near(figures["rounding"], minute)  # 4 minutes billed, 3 used
    assert is_near(figures["idle"], 2 * minute)  # 15 s and 30 s in use are a minute each
    assert is_near(figures["warm pool"], 5 * 730 * D("0.1486"))
    assert figures["snapshots"] == 0
    used = {axis.name: axis.cost for axis in axes(catalog["cloudflare-sandbox"], trace, ALL).figures}
    egress = used["egress"]
    assert egress is not None
    assert abs(egress - D("0.2") * D("1.073741824") * D("0.025")) < D("1e-10")  # whole bytes


def test_a_fast_create_needs_no_pool(catalog: Catalog) -> None:
    fast = AxesInputs(create_latency_s=D("0.2"), peak_creates_per_s=D(50))
    figures = {axis.name: axis.cost for axis in axes(catalog["e2b"], CANONICAL, fast).figures}
    assert figures["warm pool"] == 0
    assert figures["memory ratchet"] is None


def test_an_unpriced_product_has_no_figures_and_says_why(catalog: Catalog) -> None:
    result = axes(catalog["daytona"], CANONICAL, ALL)
    assert [axis.cost for axis in result.figures] == [None] * 7
    assert "billing models" in result.figures[0].note
    assert result.deciding is None


def test_caps_name_their_distance(catalog: Catalog) -> None:
    work = Workload.of(
        vcpu=4, memory_gib=8, running_hours=700, creations=90, resumes=0, suspended_hours=0, concurrency=7
    )
    uses = {(cap.plan, cap.cap): cap.share for cap in axes(catalog["codesandbox-sdk"], work).caps}
    assert uses["build", "concurrent"] == D("0.7")
    assert uses["scale", "concurrent"] == D("0.028")


@pytest.mark.parametrize("value", [D(-1), D("NaN")])
def test_inputs_that_cannot_be_meant_are_refused(value: Decimal) -> None:
    with pytest.raises(InvalidWorkloadError):
        AxesInputs(create_latency_s=value)


def test_four_questions_are_answered_from_every_card_with_its_own_sources(catalog: Catalog) -> None:
    for card in catalog:
        answers = four_questions(card)
        assert len(answers) == 4
        known = {source.id for source in card.sources}
        assert all(answer.answer for answer in answers)
        assert all(set(answer.sources) <= known for answer in answers)


def test_a_meter_with_a_rule_is_not_called_billed_in_full(catalog: Catalog) -> None:
    idle = " ".join(four_questions(catalog["aws-lambda-microvm"])[0].answer)
    assert "CPU baseline: in full, idle or not" in idle
    assert "CPU above the baseline: what the rule above-baseline counts" in idle


def test_the_four_answers_of_codesandbox(catalog: Catalog) -> None:
    idle, rounding, caps, rest = four_questions(catalog["codesandbox-sdk"])
    assert "VM credits: in full, idle or not, 0.01486 a Unit-Hours" in idle.answer
    assert "up to 60 s, 60 s at least, per run" in rounding.answer
    assert any(line.startswith("Scale: ") and "concurrent 250" in line for line in caps.answer)
    assert "fees a month: Build 0, Scale 170, Pro (legacy) not published, Enterprise not published" in rest.answer
