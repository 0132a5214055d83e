"""What launches are charged in all is what they took, however their cost changes."""

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALONE, CONTENDED, WAITED, SLICED = range(4)
US = 1000
MS = 1000 * US


@dataclass(frozen=True)
class Outcome:
    charged_ns: int
    estimate_ns: int
    measured: int


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("cost") / "costs"
    sources = [ROOT / "tests/native/compute/costs.c", ROOT / "shim/src/cost.c"]
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"]
    subprocess.run(["cc", *flags, f"-I{ROOT / 'shim/include'}", *sources, "-o", built], check=True)
    return built


def feed(program: Path, *phases: tuple[int, int, int]) -> Outcome:
    text = "".join(f"{count} {quality} {span_ns}\n" for count, quality, span_ns in phases)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return Outcome(*map(int, done.stdout.split()))


@pytest.mark.parametrize("span_ns", [2 * US, 20 * US, 50 * US, MS, 200 * MS])
def test_a_steady_kernel_is_charged_what_it_takes(program: Path, span_ns: int) -> None:
    outcome = feed(program, (5000, ALONE, span_ns))
    assert outcome.charged_ns == pytest.approx(5000 * span_ns, rel=0.001)
    assert outcome.estimate_ns == span_ns


def test_a_short_steady_kernel_is_measured_rarely_and_a_long_one_always(program: Path) -> None:
    assert feed(program, (10_000, ALONE, 5 * US)).measured < 300
    assert feed(program, (1000, ALONE, 2 * MS)).measured == 1000


def test_sizes_that_vary_are_charged_exactly(program: Path) -> None:
    sizes = [20 * US, 50 * US, MS, 20 * MS]
    order = random.Random(1)
    phases = [(1, ALONE, order.choice(sizes)) for _ in range(4000)]
    outcome = feed(program, *phases)
    assert outcome.charged_ns == pytest.approx(sum(span for _, _, span in phases), rel=0.01)


def test_sizes_that_change_now_and_then_are_charged_closely(program: Path) -> None:
    phases = [(16 * 8, ALONE, span) for span in [20 * US, 20 * MS, 50 * US, MS] * 8]
    outcome = feed(program, *phases)
    assert outcome.charged_ns == pytest.approx(
        sum(count * span for count, _, span in phases), rel=0.02
    )


def test_time_slices_of_others_are_not_charged(program: Path) -> None:
    """Half of the spans of a 1 ms kernel contain a slice of 2 ms."""
    order = random.Random(2)
    phases = [(1, CONTENDED, MS + order.choice([0, 2 * MS])) for _ in range(3000)]
    assert feed(program, *phases).charged_ns == pytest.approx(3000 * MS, rel=0.03)


def test_waiting_for_a_time_slice_is_not_charged(program: Path) -> None:
    """A span with waiting in it never raises what better spans have told."""
    order = random.Random(3)
    waits = [(1, WAITED, 50 * US + order.randrange(2 * MS)) for _ in range(8)]
    phases = [(20, CONTENDED, 50 * US), *waits] * 50
    assert feed(program, *phases).charged_ns == pytest.approx(1400 * 50 * US, rel=0.05)


def test_a_kernel_that_always_waits_is_charged_its_lowest_spans(program: Path) -> None:
    order = random.Random(4)
    phases = [(1, WAITED, 50 * US + order.choice([0, MS, 2 * MS])) for _ in range(4000)]
    assert feed(program, *phases).estimate_ns == 50 * US


@pytest.mark.parametrize("quality", [CONTENDED, WAITED, SLICED])
def test_first_launches_among_others_are_priced_anew(program: Path, quality: int) -> None:
    """Four processes begin with a 20 ms kernel at once: each measures 80 ms, later less."""
    spans = [80 * MS, 60 * MS, 40 * MS, 40 * MS, *[20 * MS] * 6]
    outcome = feed(program, *((1, quality, span) for span in spans))
    assert outcome.estimate_ns == 20 * MS
    assert outcome.charged_ns == len(spans) * 20 * MS


def test_what_is_no_longer_young_is_not_priced_anew(program: Path) -> None:
    """A kernel that becomes cheaper has cost what it did before."""
    outcome = feed(program, (100, CONTENDED, 20 * MS), (100, CONTENDED, 10 * MS))
    assert outcome.charged_ns == pytest.approx(100 * 20 * MS + 100 * 10 * MS, rel=0.05)


def test_slices_of_other_containers_unsettle_no_estimate(program: Path) -> None:
    """The arbiter needs seconds to follow, so only another cost is news, not another wait."""
    order = random.Random(5)
    first = (20, SLICED, 42 * MS)
    waits = [(1, SLICED, order.randrange(36 * MS, 80 * MS)) for _ in range(1000)]
    assert feed(program, first, *waits).estimate_ns == 42 * MS
    honest = (1, SLICED, 20 * MS)
    assert feed(program, first, *waits, honest, *waits).estimate_ns == 20 * MS
    longer = (200, SLICED, 100 * MS)
    assert feed(program, first, *waits, honest, *waits, longer).estimate_ns == 100 * MS
