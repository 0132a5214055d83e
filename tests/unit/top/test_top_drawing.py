"""The table at every width: nothing wraps, nothing is lost that has room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from aliquot.protocol.view import ClusterView, NodeView
from aliquot.top.drawing import LEAST_WIDTH, Drawing, draw
from aliquot.top.picture import picture_of
from tests.unit.top.views import CLUSTER, gpu, part

WIDTHS = (60, 80, 120, 200)


def lines(view: ClusterView, width: int = 80, **more: bool) -> list[str]:
    picture = picture_of(view, full_names=more.get("is_wide", False))
    return [line.plain for line in draw(picture, Drawing(width, **more))]


def one_gpu(*slices: object, **more: object) -> ClusterView:
    node = NodeView(name="n", taken_at=0.0, gpus=(gpu(0, *slices, **more),))  # type: ignore[arg-type]
    return ClusterView(taken_at=0.0, version="1", nodes=(node,))


def line_of(name: str, shown: list[str]) -> str:
    (found,) = [line for line in shown if line.strip().startswith(name)]
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("is_plain", [False, True])
def test_no_line_is_longer_than_the_terminal_and_columns_stand_in_line(
    width: int, is_wide: bool, is_plain: bool
) -> None:
    shown = lines(CLUSTER, width, is_wide=is_wide, is_plain=is_plain)
    assert max(map(cell_len, shown)) <= width
    if is_plain:
        assert all(line.isascii() for line in shown)
    table = [line for line in shown if "/80Gi" in line or "/16Gi" in line]
    assert len(table) == 9
    assert len({line.index("Gi") for line in table}) == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_what_matters_is_there_at_every_width(width: int) -> None:
    shown = lines(CLUSTER, width)
    train = line_of("team/train-0", shown)
    assert train.split()[-1] == "40%"
    assert "15/16Gi" in train
    assert "20/30%" in train
    assert line_of("team/whole", shown).split()[-2:] == ["20/100%", "0%"]
    assert "4/80Gi" in line_of("team/whole", shown), "it may have all of the GPU"
    assert "?/30%" in line_of("team/new", shown)
    assert "0/512Mi" in line_of("team/pair/one", shown)
    assert line_of("team/soon", shown).split()[-1] == "planned"
    text = " ".join(" ".join(shown).split())
    assert "GPU 0 of gpu-b takes nothing new: it has fallen off the bus" in text
    assert "gpu-b: the agent has not answered for 40 s" in text
    assert "team/pair/two: 2 processes on the GPU without the shim" in text
    assert "team/large for 10 min, asks for 48 GiB and 50 % of one GPU" in text
    assert "delete or resize a pod there, or ask for less" in text
    assert "2 nodes: 3 GPUs, 8 containers, 1 pod waiting" in text


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    shown = lines(CLUSTER, 60)
    (chat,) = [line for line in shown if line.strip().startswith("web/")]
    assert "…" in chat
    assert chat.split()[0].endswith("x2k9p"[-3:])


def test_wide_has_more_where_there_is_room_for_it() -> None:
    narrow, wide = lines(CLUSTER, 80, is_wide=True), lines(CLUSTER, 200, is_wide=True)
    assert "UUID" not in narrow[0]
    assert all(title in wide[0] for title in ("POLICY", "PEAK", "REFUSED", "UUID"))
    assert "GPU-00000000-0000-0000-0000-000000000001" in line_of("GPU 1", wide)
    assert "12345" in line_of("nnn", [line for line in wide if "!" not in line])
    assert "burst" in line_of("team/train-0/main", wide)


@pytest.mark.parametrize(
    ("used", "share", "bar"),
    [
        (0.0, 0.0, "|---------"),
        (50.0, 100.0, "#####----|"),
        (100.0, 50.0, "#####|####"),
        (1.0, 50.0, "#----|----"),
        (None, 30.0, "---|------"),
    ],
)
def test_a_bar_is_filled_by_use_and_marked_at_the_share(
    used: float | None, share: float, bar: str
) -> None:
    only = part("a", compute_percent=share, compute_used_percent=used)
    assert f" {bar} " in line_of("team/a", lines(one_gpu(only), 88, is_plain=True))


def test_a_gpu_without_a_counter_of_its_own_shows_the_sum_of_its_containers() -> None:
    known = one_gpu(part("a"), part("b"), utilization_percent=None)
    assert line_of("GPU 0", lines(known)).split()[-1] == "40%"
    unknown = one_gpu(part("a", compute_used_percent=None), utilization_percent=None)
    assert line_of("GPU 0", lines(unknown)).split()[-1] == "?"


def test_many_notes_do_not_push_the_gpus_away() -> None:
    slices = [part(f"p{number}", memory_refusals=1) for number in range(30)]
    notes = [line for line in lines(one_gpu(*slices)) if line.startswith("!")]
    assert len(notes) == 6
    assert notes[-1] == "! and 25 more notes; -o json has all"


def test_a_run_of_this_machine_is_called_by_its_name() -> None:
    run = part("train", "", container="python train.py --epochs 3")
    shown = lines(one_gpu(run))
    assert line_of("train", shown).split()[0] == "train"
    assert "n: 1 GPU, 1 run" in shown
    assert "python train.py" in line_of("train", lines(one_gpu(run), 160, is_wide=True))


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=80)
amounts = st.one_of(st.none(), st.integers(0, 1 << 47))
percents = st.one_of(st.none(), st.floats(0, 100))


@given(
    names,
    names,
    amounts,
    amounts,
    percents,
    st.floats(0, 100),
    st.integers(1, 300),
    st.booleans(),
    st.booleans(),
)
def test_nothing_that_a_view_can_say_breaks_the_table(
    pod: str,
    container: str,
    limit: int | None,
    used: int | None,
    busy: float | None,
    share: float,
    width: int,
    is_wide: bool,
    is_running: bool,
) -> None:
    each = part(
        pod,
        container=container,
        memory_limit_bytes=limit,
        memory_used_bytes=used,
        compute_used_percent=busy,
        compute_percent=share,
        throttled_percent=busy,
        is_running=is_running,
        memory_refusals=1,
    )
    shown = lines(one_gpu(each, memory_used_bytes=used), width, is_wide=is_wide)
    assert max(map(cell_len, shown)) <= max(LEAST_WIDTH, width)
    assert all(character.isprintable() for line in shown for character in line)
