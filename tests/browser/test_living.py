"""The page over time and over many nodes: it follows, finds, sorts, and outlives its server."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.site import GIB, cluster, gpu, node, part

pytestmark = pytest.mark.xdist_group("browser")


def refresh(page: Page) -> None:
    """As when somebody comes back to the page: it asks at once."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def names(page: Page) -> Locator:
    return page.locator("#nodes h3")


def test_it_follows_what_happens_and_keeps_what_stays(site, visit):
    site.view = cluster(node("n", gpu(0, part("old", 10, 10, memory_used_bytes=GIB))))
    page = visit()
    expect(page.locator(".bar.memory .name")).to_have_text(["old"])
    # The same elements go on: what somebody has opened or marked stays as it is.
    page.evaluate("document.querySelector('.gpu').marked = true")
    page.get_by_role("button", name="1 container").click()
    both = [part("old", 10, 10, memory_used_bytes=5 * GIB), part("new", 10, 10)]
    site.view = cluster(node("n", gpu(0, *both)))
    refresh(page)
    expect(page.locator(".bar.memory .name")).to_have_text(["old", "new"])
    expect(page.locator(".slices tbody th")).to_have_text(["team/old", "team/new"])
    expect(page.locator(".slices tbody tr").first).to_contain_text("5 GiB of 10 GiB")
    assert page.evaluate("document.querySelector('.gpu').marked") is True
    site.view = cluster(node("n", gpu(0, part("new", 10, 10))))
    # And by itself.
    expect(page.locator(".bar.memory .name")).to_have_text(["new"])
    site.view = cluster()
    refresh(page)
    expect(names(page)).to_have_count(0)


def test_it_says_when_nobody_answers_and_goes_on_afterwards(site, visit):
    site.view = cluster(node("before", gpu(0)))
    page = visit()
    expect(names(page)).to_have_text(["before"])
    expect(page.locator("#state")).to_have_text("live")
    page.context.set_offline(True)
    refresh(page)
    expect(page.locator("#state")).to_contain_text("No news: the extender does not answer.")
    expect(page.locator("#time")).to_contain_text("next attempt in")
    expect(names(page)).to_have_text(["before"])
    site.view = cluster(node("after", gpu(0)))
    page.context.set_offline(False)
    expect(names(page)).to_have_text(["after"])
    expect(page.locator("#state")).to_have_text("live")
    site.trouble = "nodes and pods are still being read"
    refresh(page)
    expect(page.locator("#state")).to_contain_text("nodes and pods are still being read")


def test_nodes_are_found_by_pod_namespace_node_and_model(site, visit):
    site.view = cluster(
        node("gpu-1", gpu(0, part("trainer-7", 10, 10), node="a")),
        node("gpu-2", gpu(0, part("web", 10, 10, namespace="shop"), node="b")),
        node("gpu-10", gpu(0, node="c")),
    )
    page = visit()
    expect(names(page)).to_have_text(["gpu-1", "gpu-2", "gpu-10"])
    search = page.get_by_role("searchbox")
    for words, found in (
        ("TRAINER", ["gpu-1"]),
        ("shop/web", ["gpu-2"]),
        ("gpu-1", ["gpu-1", "gpu-10"]),
        ("a100 web", ["gpu-2"]),
        ("nothing-like-this", []),
    ):
        search.fill(words)
        expect(names(page)).to_have_text(found)
    expect(page.locator("#nothing")).to_contain_text("No node, GPU or pod has such a name")
    search.fill("web")
    expect(page.locator(".slice.found .name")).to_have_text(["web", "web"])
    search.fill("")
    expect(names(page)).to_have_count(3)


def test_nodes_are_sorted_as_asked(site, visit):
    site.view = cluster(
        node("full", gpu(0, part("p", 30, 10), node="a", memory_used_bytes=GIB)),
        node("idle", gpu(0, node="b", utilization_percent=1.0)),
        node("sick", gpu(0, part("q", 10, 90), node="c", unusable="Xid 79")),
    )
    page = visit()
    expect(names(page)).to_have_text(["full", "idle", "sick"])
    sort = page.get_by_label("Sort by")
    for order, first in (
        ("memory-free", "idle"),
        ("memory-used", "full"),
        ("compute-used", "idle"),
        ("problems", "sick"),
    ):
        sort.select_option(order)
        expect(names(page).first).to_have_text(first)


def test_dark_is_dark(site, visit):
    site.view = cluster(node("n", gpu(0, part("p", 20, 20))))

    def brightness(page: Page, selector: str, what: str) -> int:
        expect(page.locator(selector).first).to_be_visible()
        return page.evaluate(
            "([selector, what]) => getComputedStyle(document.querySelector(selector))[what]"
            ".match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b)",
            [selector, what],
        )

    light, dark = visit(color_scheme="light"), visit(color_scheme="dark")
    for selector in (":root", ".node", ".bar", ".slice"):
        bright = brightness(light, selector, "backgroundColor")
        dim = brightness(dark, selector, "backgroundColor")
        assert bright > 500, selector
        assert dim < 260, selector
    for selector in ("h3", ".slice .name"):
        assert brightness(light, selector, "color") < 150
        assert brightness(dark, selector, "color") > 600


def test_a_phone_needs_no_sideways_scrolling(site, visit):
    long = "a-rather-long-name-that-somebody-chose-" * 3
    site.view = cluster(
        node(long, gpu(0, part(long, 20, 20), part("q", 10, 10), unusable=long), problem=long)
    )
    page = visit(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    page.get_by_role("button", name="2 containers").tap()
    expect(page.locator(".slices tbody tr")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    # What is tapped is large enough, and inside.
    box = page.get_by_role("searchbox").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 360


def test_five_hundred_nodes(site, visit):
    site.view = cluster(
        *(
            node(
                f"gpu-node-{number}",
                *(
                    gpu(index, *(part(f"p-{index}-{each}", 8, 20) for each in range(4)),
                        node=f"{number}")
                    for index in range(8)
                ),
            )
            for number in range(500)
        )
    )  # fmt: skip
    page = visit()
    expect(names(page)).to_have_count(500)
    expect(page.locator('[data-tile="GPUs"] .value')).to_have_text("4000")
    # Only what is near the visible part is drawn.
    expect(page.locator('[data-node="gpu-node-0"] .slice').first).to_be_visible()
    assert page.locator(".gpu").count() < 400
    expect(page.locator('[data-node="gpu-node-499"] .gpu')).to_have_count(0)
    page.locator('[data-node="gpu-node-499"]').scroll_into_view_if_needed()
    expect(page.locator('[data-node="gpu-node-499"] .gpu')).to_have_count(8)
    expect(page.locator('[data-node="gpu-node-0"] .gpu')).to_have_count(0)
    page.get_by_role("searchbox").fill("gpu-node-250")
    expect(names(page)).to_have_text(["gpu-node-250"])
    expect(page.locator('[data-node="gpu-node-250"] .gpu')).to_have_count(8)
