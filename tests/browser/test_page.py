"""What somebody who opens the page sees: contents and proportions, not pixels."""

import time

import pytest
from playwright.sync_api import Locator, expect

from aliquot.protocol.view import WaitingView
from tests.browser.site import GIB, cluster, gpu, history, node, part

pytestmark = pytest.mark.xdist_group("browser")


def width(found: Locator) -> float:
    box = found.bounding_box()
    assert box is not None
    return box["width"]


def bar(page, uuid: str, what: str) -> Locator:
    return page.locator(f'.gpu[data-uuid="{uuid}"] .bar.{what}')


def test_a_gpu_is_cut_into_its_pods_parts_in_proportion(site, visit):
    site.view = cluster(
        node(
            "n",
            gpu(
                0,
                part("half", 20, 25, memory_used_bytes=5 * GIB, compute_used_percent=20.0),
                part("tenth", 4, 60, memory_used_bytes=4 * GIB, compute_used_percent=15.0),
            ),
        )
    )
    page = visit()
    memory, compute = bar(page, "GPU-n-0", "memory"), bar(page, "GPU-n-0", "compute")
    expect(memory.locator(".slice")).to_have_count(2)
    whole = width(memory)
    assert width(memory.locator(".slice").nth(0)) / whole == pytest.approx(0.5, abs=0.01)
    assert width(memory.locator(".slice").nth(1)) / whole == pytest.approx(0.1, abs=0.01)
    assert width(compute.locator(".slice").nth(0)) / whole == pytest.approx(0.25, abs=0.01)
    assert width(compute.locator(".slice").nth(1)) / whole == pytest.approx(0.6, abs=0.01)
    # What is used of a part is inside of it: a quarter of the half, all of the tenth.
    used = memory.locator(".use")
    assert width(used.nth(0)) / whole == pytest.approx(0.125, abs=0.01)
    assert width(used.nth(1)) / whole == pytest.approx(0.1, abs=0.01)
    assert width(compute.locator(".use").nth(0)) / whole == pytest.approx(0.2, abs=0.01)
    expect(memory.locator(".name")).to_have_text(["half", "tenth"])
    label = "memory: 24 GiB of 40 GiB, 9 GiB used"
    expect(page.get_by_role("img", name=label)).to_be_visible()


def test_whole_gpus_planned_parts_and_borrowed_time(site, visit):
    site.view = cluster(
        node(
            "n",
            gpu(0, part("all", None, 100, compute_used_percent=40.0)),
            gpu(
                1,
                part("burst", 8, 20, compute_used_percent=55.0),
                part("soon", 8, 20, is_running=False),
            ),
        )
    )
    page = visit()
    only = bar(page, "GPU-n-0", "memory").locator(".slice")
    expect(only).to_have_count(1)
    assert width(only) == pytest.approx(width(bar(page, "GPU-n-0", "memory")), abs=1)
    burst, soon = bar(page, "GPU-n-1", "compute").locator(".slice").all()
    expect(burst).to_have_class("slice colour-" + _colour(burst) + " borrows")
    assert width(burst.locator(".use")) <= width(burst)
    expect(soon).to_have_class("slice colour-" + _colour(soon) + " planned")
    assert width(soon.locator(".use")) == 0


def _colour(found: Locator) -> str:
    return (found.get_attribute("class") or "").split("colour-")[1][0]


def test_the_table_behind_a_gpu_says_all_that_is_known(site, visit):
    told = part(
        "trainer-0",
        12,
        30,
        policy="burst",
        memory_used_bytes=7 * GIB,
        memory_peak_bytes=9 * GIB,
        memory_refusals=3,
        compute_used_percent=28.4,
        throttled_percent=4.5,
        shim_missing=2,
    )
    site.view = cluster(node("n", gpu(0, told, part("other", 4, 10))))
    page = visit()
    button = page.get_by_role("button", name="2 containers")
    expect(button).to_have_attribute("aria-expanded", "false")
    # By keyboard, as somebody without a mouse does.
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    row = page.get_by_role("row").filter(has_text="team/trainer-0")
    texts = [text.strip() for text in row.locator("th, td").all_inner_texts()]
    assert texts == [
        "team/trainer-0",
        "main",
        "burst",
        "7 GiB of 12 GiB, at most 9 GiB",
        "3",
        "28 % of 30 %",
        "4.5 %",
        "2 processes without the shim",
    ]
    other = page.get_by_role("row").filter(has_text="team/other").locator("td")
    expect(other.nth(2)).to_have_text("4 GiB")
    expect(other.nth(4)).to_have_text("10 %")
    page.keyboard.press("Enter")
    expect(row).to_have_count(0)


def test_problems_unusable_gpus_and_waiting_pods_say_why(site, visit):
    site.view = cluster(
        node("ill", gpu(0, unusable="Xid 79: it has fallen off the bus"), gpu(1)),
        node("mute", gpu(0, node="m"), problem="its agent tells nothing: refused"),
        waiting=(
            WaitingView(
                namespace="team",
                pod="big",
                since=time.time() - 600,
                asks="60 GiB and 10 percent",
                reason="its GPUs are free on none of 2 nodes",
            ),
        ),
    )
    page = visit()
    expect(page.locator(".unusable:visible")).to_have_text(
        ["Nothing new starts here: Xid 79: it has fallen off the bus"]
    )
    expect(page.locator(".problem:visible")).to_have_text(["its agent tells nothing: refused"])
    cells = page.locator("#waiting tbody th, #waiting tbody td")
    expect(cells).to_have_text(
        ["team/big", "60 GiB and 10 percent", "10 min", "its GPUs are free on none of 2 nodes"]
    )
    expect(page.locator('[data-tile="GPUs"]')).to_contain_text("1 unusable")
    expect(page.locator('[data-tile="waiting"]')).to_contain_text("1 pod")


def test_totals_are_over_all_nodes(site, visit):
    site.view = cluster(
        *(
            node(name, gpu(0, part("p", 10, 50), node=name, memory_used_bytes=6 * GIB))
            for name in ("a", "b", "c")
        )
    )
    page = visit()
    expect(page.locator('[data-tile="nodes"] .value')).to_have_text("3")
    expect(page.locator('[data-tile="memory"] .value')).to_have_text("30 GiB of 120 GiB booked")
    expect(page.locator('[data-tile="memory"] .tile-more')).to_have_text("18 GiB of 120 GiB used")
    expect(page.locator('[data-tile="compute"] .value')).to_have_text("50 % booked")
    expect(page.locator('[data-tile="compute"] .tile-more')).to_have_text("use is not known")
    expect(page.locator('[data-tile="waiting"] .value')).to_have_text("0 pods")


def test_the_last_hour_of_the_cluster_and_of_a_node(site, visit):
    site.view = cluster(node("n", gpu(0)), history=history([10.0, None, 20.0], [30.0, 40.0, 50.0]))
    page = visit()
    expect(page.locator("#history figure")).to_have_count(2)
    memory = page.get_by_role("img", name="memory of the cluster")
    expect(memory).to_have_attribute(
        "aria-label",
        "memory of the cluster, the last 3 min: booked 40 GiB, used 20 GiB, at most 20 GiB used",
    )
    # A step of which nobody knows anything is a gap: two areas, not one.
    assert (memory.locator(".used-area").get_attribute("d") or "").count("M") == 2
    assert "view?history&node=n" not in site.asked
    page.get_by_role("button", name="last hour of n").click()
    expect(page.locator(".node .charts figure")).to_have_count(2)
    assert "history&node=n" in site.asked


def test_names_and_reasons_are_text_whatever_they_contain(site, visit):
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    site.view = cluster(
        node(
            evil,
            gpu(
                0,
                part(evil, 10, 10, namespace=evil, container=evil, policy=evil),
                node=evil,
                unusable=evil,
            ),
            problem=evil,
        ),
        waiting=(WaitingView(namespace=evil, pod=evil, since=time.time(), asks=evil, reason=evil),),
    )
    page = visit()
    expect(page.locator("h3")).to_have_text(evil)
    page.get_by_role("button", name="1 container").click()
    expect(page.locator(".slices tbody td").first).to_have_text(evil)
    expect(page.locator("#waiting tbody td").last).to_have_text(evil)
    assert page.locator("main img, main script").count() == 0
    expect(page).to_have_title("Aliquot")


def test_an_empty_cluster_says_what_to_look_for(site, visit):
    page = visit()
    expect(page.locator("#nothing")).to_contain_text("No node reports GPUs yet")
