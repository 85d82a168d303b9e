"""The page in a real browser, over a real service and a real store. No test leaves an error in the page's console."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import stores
from browser import Browser
from patience import PATIENCE, wait_until
from traffic import PATHS, SITES, Traffic

SERVE = """
import sys
from lately.service import serve
serve(sys.argv[1], port=int(sys.argv[2]), token=sys.argv[3] or None, ready=lambda port: print(port, flush=True))
"""
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
DRAWN = (
    "!!document.querySelector('#hot-chart canvas') && ['live', 'quiet'].includes(document.querySelector('#live').dataset.state)"
)
OPTION = "echarts.getInstanceByDom(document.querySelector('#{}')).getOption()"


#: Collects the texts of toasts: they disappear by themselves, on a busy machine perhaps between two polls of the page.
TOASTS = """(() => {
    window.toasts = [];
    const collect = (nodes) => nodes.forEach((node) => node.matches?.(".toast.firing") && toasts.push(node.innerText));
    const observer = new MutationObserver((changes) => changes.forEach((change) => collect(change.addedNodes)));
    observer.observe(document.querySelector("#toasts"), { childList: true });
})()"""
#: From now on the test ends the time limits of requests: each is listed with its length.
LIMITS = """(() => {
    window.limits = [];
    AbortSignal.timeout = (milliseconds) => {
        const controller = new AbortController();
        limits.push({ milliseconds, pass: () => controller.abort(new DOMException("", "TimeoutError")) });
        return controller.signal;
    };
})()"""
#: Counts how often charts are drawn in five ticks of the page's clock, when nothing happens.
IDLE = """new Promise((done) => {
    let ticks = 0, drawn = 0;
    const charts = [...document.querySelectorAll(".chart")].map((e) => echarts.getInstanceByDom(e)).filter((chart) => chart);
    charts.forEach((chart) => chart.on("rendered", () => drawn++));
    setInterval(() => ++ticks === 5 && done([charts.length, drawn]), 1000);
})"""


#: The processes of the services by their addresses.
RUNNING: dict[str, int] = {}


@contextmanager
def served(path, port=0, token="", before=""):
    """The service in a process of its own, which runs the code ``before`` first; gives its address."""
    command = [sys.executable, "-c", before + SERVE, str(path), str(port), token]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = f"http://127.0.0.1:{int(process.stdout.readline())}/"
            RUNNING[address] = process.pid
            yield address
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.fixture(scope="module")
def traffic(tmp_path_factory):
    return Traffic(tmp_path_factory.mktemp("traffic") / "store", batches=40)


@pytest.fixture(scope="module")
def address(traffic):
    with served(traffic.store.path) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    with Browser() as chromium:
        yield chromium


@pytest.fixture
def fresh(browser):
    """The browser in its initial state, wide and dark; afterwards there are no errors and no requests to other hosts."""
    browser.size(1440, 1000)
    browser.prefer("dark")
    browser.events.clear()
    yield browser
    assert browser.problems() == []
    assert {urlsplit(url).hostname for url in browser.requests()} == {"127.0.0.1"}
    browser.open("about:blank")


@pytest.fixture
def page(fresh, address):
    """The page, drawn, without anything that earlier tests stored in it."""
    fresh.open(address)
    fresh.wait("document.readyState === 'complete'")
    fresh.run("localStorage.clear(), sessionStorage.clear()")
    fresh.open(address)
    fresh.wait(DRAWN)
    return fresh


def text(page, selector):
    return page.run(f"document.querySelector('{selector}').innerText")


def test_hot_keys_have_error_bars(page, traffic):
    option = page.run(OPTION.format("hot-chart"))
    keys, (bars, bounds) = option["yAxis"][0]["data"], option["series"][:2]
    assert keys[0] == max(PATHS, key=traffic.truth)
    assert bounds["name"] == "bounds"
    assert len(bounds["data"]) == len(keys) == 12
    for key, value, (_, low, high) in zip(keys, bars["data"], bounds["data"], strict=True):
        assert low <= value <= high
        assert low <= traffic.truth(key) <= high
    page.shot(SHOTS / "dark.png")


def test_a_click_on_a_hot_key_shows_its_trend_in_its_band(page):
    second = page.run(OPTION.format("hot-chart"))["yAxis"][0]["data"][1]
    page.click("#hot-chart")  # in the middle: a bar, or the room beside it
    picked = page.wait("(v => v !== '/' && v)(document.querySelector('#trend-item').value)")
    page.choose("#trend-item", second)
    page.wait(f"{OPTION.format('trend-chart')}.series.at(-1).name === '{second}'")
    low, band, value = page.wait(f"(s => s[2].data.length === 40 && s)({OPTION.format('trend-chart')}.series)")
    assert picked in PATHS
    for (_, bottom), (_, height), (_, middle) in zip(low["data"], band["data"], value["data"], strict=True):
        assert bottom <= middle <= bottom + height
    assert band["areaStyle"]["opacity"] > 0


def test_ranges_and_brushing(page):
    ends = "(o => [o.xAxis[0].min, o.xAxis[0].max])"
    page.wait(f"{OPTION.format('trend-chart')}.series[2].data.length > 30")
    before = page.run(f"{ends}({OPTION.format('trend-chart')})")
    page.drag("#trend-chart", 0.4, 0.6)
    page.wait("document.querySelectorAll('#ranges button').length === 5")
    after = page.wait(f"(e => e[0] > {before[0]} && e)({ends}({OPTION.format('trend-chart')}))")
    assert after[1] < before[1]
    page.see("#bytes-chart")
    page.wait(f"{ends}({OPTION.format('bytes-chart')})[0] === {after[0]}")  # all charts of time together
    page.click("#ranges button:nth-child(1)")
    page.run("scrollTo(0, 0)")
    page.wait(f"{ends}({OPTION.format('trend-chart')})[1] === {before[1]}")
    assert page.run("document.querySelectorAll('#ranges button').length") == 4


def test_quantiles_bytes_and_processing(page):
    assert (
        page.wait(f"(s => s.length === 9 && s[2].data.length === 40 && s[2].name)({OPTION.format('quantiles-chart')}.series)")
        == "p99"
    )
    page.see("#seconds-chart")
    everything, answers, _ = page.wait(
        f"(s => s.length === 3 && s.map(one => one.data.at(-1)[1]))({OPTION.format('bytes-chart')}.series)"
    )
    assert answers == 3000 * 40
    assert everything > answers
    assert "of the raw size" in text(page, "#bytes-summary")
    for name in ("rate", "memory", "seconds"):
        assert len(page.run(OPTION.format(f"{name}-chart"))["series"][0]["data"]) >= 39
        assert text(page, f"#{name}-now") not in ("", "–")


def test_sites(page):
    page.wait(f"document.querySelectorAll('#totals tr').length === {len(SITES) + 1}")
    assert text(page, "#totals td") == SITES[0]  # it has the most rows
    assert "%" in text(page, "#totals tr td:nth-child(4)")
    page.wait(f"document.querySelectorAll('#sites tr').length === {len(SITES)}")
    assert text(page, "#sites-hint") == "8 sites · 1 silent · 1 ahead"
    shown = [row.split("\t") for row in text(page, "#sites").split("\n")]
    assert shown[0][:3] == ["oslo", "ahead", "22 h ahead"]
    assert shown[1][:2] == ["lima", "silent"]
    assert {row[1] for row in shown[2:]} == {"ok"}
    assert "22 h" not in text(page, "#fact-lag")
    page.run("document.querySelector('.card.sites').scrollIntoView()")
    page.shot(SHOTS / "sites.png")


def test_the_ask_box_answers_within_bounds(page, traffic):
    page.fill("#ask-key", "/cart")
    page.click("#ask button")
    sentence = page.wait("document.querySelector('#answer .sentence')?.innerText")
    assert "/cart occurred about" in sentence
    assert "in the last 10 minutes at all sites" in sentence
    assert "with a probability of at least 99 %" in sentence
    low, high = (float(part.replace(",", "")) for part in sentence.split("between ")[1].split(" with")[0].split(" and "))
    assert low <= traffic.truth("/cart") <= high


def test_other_questions(page):
    page.choose("#ask-what", "top")
    page.fill("#ask-site", "lima")
    page.click("#ask button")
    page.wait("document.querySelectorAll('#answer tbody tr').length === 10")
    assert "at lima" in text(page, "#answer .sentence")
    page.choose("#ask-what", "quantiles")
    page.choose("#ask-when", "window")
    page.click("#ask button")
    page.wait("document.querySelector('#answer td')?.innerText === 'median'")
    page.choose("#ask-what", "total")
    page.choose("#ask-when", "between")
    page.fill("#ask [name=from]", "2m")
    page.fill("#ask [name=to]", "1m")
    page.click("#ask button")
    page.wait("document.querySelector('#answer').innerText.includes('between 2 minutes ago and 1 minute ago at lima')")


def test_a_new_batch_and_its_alert_come_by_themselves(page, traffic):
    page.wait(f"(s => s[2].data.length)({OPTION.format('trend-chart')}.series)")
    requests = len([url for url in page.requests() if "/api/history" in url])
    page.run(TOASTS)
    traffic.step(alerts=[("/tickets/cup-final", "firing")])
    toast = page.wait("toasts[0]")
    assert "flood · /tickets/cup-final" in toast
    assert "Firing: crossed the threshold of 2 K" in toast
    assert "/tickets/cup-final" in text(page, "#alerts li.firing")
    page.wait("document.querySelector('#alerts-hint').innerText === '1 firing'")
    page.wait("document.querySelector('#fact-alerts').innerText === '1' && document.title.startsWith('(1)')")
    page.wait(f"document.querySelector('#fact-batch').innerText.startsWith('batch {traffic.batch - 1},')")
    page.wait(f"(s => s[2].data.length > 40)({OPTION.format('trend-chart')}.series)")
    assert len([url for url in page.requests() if "/api/history" in url]) == requests  # it grew by the answers
    page.shot(SHOTS / "alert.png", whole=False)
    traffic.step(alerts=[("/tickets/cup-final", "resolved")])
    page.wait("document.querySelector('#fact-alerts').innerText === 'none' && !document.title.startsWith('(')")
    assert "Resolved: back within the threshold" in text(page, "#alerts li.resolved")


def test_dark_and_light(page):
    paper = "getComputedStyle(document.body).backgroundColor"
    label = f"{OPTION.format('hot-chart')}.yAxis[0].axisLabel.color"
    dark, dark_label = page.run(paper), page.run(label)
    page.click("#theme")
    page.wait(f"{paper} !== '{dark}' && {label} !== '{dark_label}'")
    page.shot(SHOTS / "light.png")
    page.reload()
    page.wait(DRAWN)
    assert page.run("document.documentElement.dataset.theme") == "light"  # it is remembered
    page.run("localStorage.clear()")
    page.prefer("light")
    page.run("new Promise(requestAnimationFrame)")  # changes are told once a frame
    page.prefer("dark")
    page.wait("document.documentElement.dataset.theme === 'dark'")  # the system decides again


def test_on_a_phone(page):
    page.size(390, 844, phone=True)
    page.reload()
    page.wait(DRAWN)
    page.see("#seconds-chart")
    assert page.run("document.documentElement.scrollWidth") == 390
    assert page.run("new Set([...document.querySelectorAll('.card')].map(e => e.getBoundingClientRect().x)).size") == 1
    small = "[...document.querySelectorAll('button, select, input')].filter(e => e.checkVisibility() && e.offsetHeight < 40)"
    assert page.run(f"{small}.map(e => e.id || e.name || e.className)") == []
    page.run("scrollTo(0, 0)")
    page.shot(SHOTS / "phone.png")


def test_everything_has_a_name(page):
    unnamed = """[...document.querySelectorAll('button, select, input, .chart, section')].filter(e => e.checkVisibility()
        && !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.labels?.length || e.innerText.trim()))"""
    for chart in page.run("[...document.querySelectorAll('.chart')].filter(e => e.checkVisibility()).map(e => e.id)"):
        page.see(f"#{chart}")  # a chart has its name once it is drawn
    page.wait(f"{unnamed}.length === 0")


def test_it_is_painted_before_the_charts_and_the_answers_are_there(page):
    with page.holding("*/vendor/*", "*/api/*") as held:
        page.reload()
        page.wait("performance.getEntriesByName('first-contentful-paint').length")
        page.wait("document.readyState !== 'loading'")
        wait_until(lambda: {"vendor", "api"} == {urlsplit(url).path.split("/")[-2] for url in held()})
        assert page.run("document.querySelector('h1').checkVisibility()")
        assert not page.run("document.querySelector('canvas')")
    page.wait(DRAWN)


def test_it_does_little_while_nothing_happens(page):
    page.see("#seconds-chart")
    page.run("scrollTo(0, 0)")
    page.wait(DRAWN)
    page.call("Performance.enable")
    page.run("new Promise((done) => setTimeout(done, 1000))")  # for what the scrolling has begun

    def layouts():
        return next(m["value"] for m in page.call("Performance.getMetrics")["metrics"] if m["name"] == "LayoutCount")

    before = layouts()
    charts, drawn = page.run(IDLE)
    assert charts >= 7
    assert drawn == 0
    assert layouts() - before <= 2 * 7  # the texts that tell how old something is, once a second


def test_the_token_is_asked_for(browser, traffic):
    browser.size(1440, 1000)
    browser.events.clear()
    with served(traffic.store.path, token="open-sesame") as address:
        browser.open(address)
        browser.wait("document.querySelector('#token').open")
        browser.fill("#token-value", "wrong-sesame")
        browser.click("#token button")
        browser.wait("document.querySelector('#token-wrong').innerText === 'This token is not valid.'")
        browser.fill("#token-value", "open-sesame")
        browser.click("#token button")
        browser.wait(DRAWN)
        assert browser.run("sessionStorage.getItem('lately-token')") == "open-sesame"
        browser.reload()
        browser.wait(DRAWN)
        assert not browser.run("document.querySelector('#token').open")
        browser.run("sessionStorage.clear()")
        refused = [problem for problem in browser.problems() if "401" not in problem]  # the browser tells of each 401 itself
        browser.open("about:blank")
    assert refused == []


def test_a_store_without_sketches_says_what_to_do(fresh, tmp_path):
    path = Traffic(tmp_path / "store", batches=2, store_sketches=False).store.path
    with served(path) as address:
        fresh.open(address)
        fresh.wait(DRAWN)
        for place in ("#answer", "#totals-empty"):
            fresh.wait(f"document.querySelector('{place}').innerText.includes('sketches = \"always\"')")
        assert fresh.run("document.querySelector('#ask').hidden")
        fresh.open("about:blank")


def test_integer_times_and_no_top_query(fresh, tmp_path):
    with served(stores.ports(tmp_path / "store").path) as address:
        fresh.open(address)
        fresh.wait("document.querySelector('#hot-empty').innerText.includes('kind = \"top\"')")
        fresh.wait(f"{OPTION.format('trend-chart')}.xAxis[0].type === 'value'")
        assert [*text(fresh, "#ranges").split()] == ["8", "25", "100", "All"]
        assert text(fresh, "#fact-time") == "95"
        fresh.choose("#ask-what", "range")
        fresh.choose("#ask-when", "window")
        fresh.click("#ask button")
        assert "About 5 rows had a key from 0 to 1023" in fresh.wait("document.querySelector('#answer .sentence')?.innerText")
        fresh.open("about:blank")


def test_integer_times_have_all_their_digits(fresh, tmp_path):
    store = stores.many_sites(tmp_path / "store", 3, "integer")
    with served(store.path) as address:
        fresh.open(address)
        fresh.wait("document.querySelector('#fact-time').innerText === '1790000290'")
        fresh.wait(
            "document.querySelector('#trend-chart canvas') && document.querySelector('#ranges').innerText.includes('1000')"
        )
        label = fresh.run(f"{OPTION.format('trend-chart')}.xAxis[0].axisLabel.formatter(1790000050)")
        assert label == "1790000050"
        fresh.wait("document.querySelector('#totals-hint').innerText.includes('1790000290')")
        assert not fresh.run("/1.79 ?G/.test(document.body.innerText)")
        fresh.open("about:blank")


@pytest.mark.parametrize("sites", [200, 2_000])
def test_many_sites(fresh, tmp_path, sites):
    """Every card shows an answer in the end, also the first one over all sites, and none is sent all of them."""
    store = stores.many_sites(tmp_path / "store", sites)
    with served(store.path) as address:
        fresh.open(address)
        fresh.wait("document.querySelectorAll('#sites tr').length >= 20")
        silent = sites // 100
        assert text(fresh, "#sites-hint") == f"{sites:,} sites · {silent} silent · {silent} ahead"
        shown = [row.split("\t") for row in text(fresh, "#sites").split("\n")]
        ahead = min(10, silent)
        assert [row[0] for row in shown[:ahead]] == [f"site-{100 * number + 5:04}" for number in range(ahead)]
        assert shown[ahead][:3] == ["site-0003", "silent", "4 min"]
        assert len(shown) <= 30
        fresh.wait("document.querySelectorAll('#totals tr').length === 101")
        assert f"the largest 100 of {sites:,}" in text(fresh, "#totals-hint")
        fresh.fill("#ask-key", "/")
        fresh.choose("#ask-when", "window")
        fresh.click("#ask button")
        sentence = fresh.wait("document.querySelector('#answer .sentence')?.innerText")
        if "between " in sentence:
            low, high = (
                float(part.replace(",", "")) for part in sentence.split("between ")[1].split(" with")[0].split(" and ")
            )
            assert low <= sites <= high
        else:  # both bounds are the value
            assert f"{sites:,}" in sentence
        fresh.fill("#ask-site", "nowhere")
        fresh.click("#ask button")
        fresh.wait("document.querySelector('#answer .wrong')?.innerText.includes('nowhere')")
        fresh.wait("!document.querySelector('#ask button').disabled")
        # That it knows no such site, and, while the machine is busy, that an answer is still being prepared.
        assert all("404" in problem or "503" in problem for problem in fresh.problems())
        fresh.events[:] = [event for event in fresh.events if event.get("method") != "Log.entryAdded"]
        fresh.open("about:blank")


def test_bounds_that_look_alike_are_shown_in_full(page):
    texts = page.run("""import('/static/js/format.js').then(({ between, full }) => [
        between({ low: 5481, high: 5483 }), between({ low: 5000, high: 6000 }), between({ low: 5481, high: 5481 }),
        between({ low: 1234567.01, high: 1234567.02 }), between({ low: 5481, high: 5483 }, full)])""")
    assert texts == ["5,481 – 5,483", "5 K – 6 K", "exact", "1234567.01 – 1234567.02", "5,481 – 5,483"]
    sentence = page.run("""import('/static/js/sentences.js').then(({ boundsSentence }) =>
        boundsSentence({ value: 1234567.015, low: 1234567.01, high: 1234567.02, confidence: 0.99 }))""")
    assert sentence == "The true value is between 1234567.01 and 1234567.02 with a probability of at least 99 %."


def test_an_answer_that_is_being_prepared_is_asked_for_again(browser, tmp_path):
    """The service gives up on a request after two milliseconds here; what it works on is there when it is asked again."""
    store = stores.many_sites(tmp_path / "store", 200)
    hasty = "from lately.service import app, executor\napp.TimedExecutor = lambda: executor.TimedExecutor(0.002)\n"
    with served(store.path, before=hasty) as address:
        browser.size(1440, 1000)
        browser.events.clear()
        browser.open(address)
        browser.wait("document.querySelectorAll('#totals tr').length === 101")
        browser.fill("#ask-key", "/")
        browser.choose("#ask-when", "last")
        browser.fill("#ask [name=last]", "500s")
        browser.click("#ask button")
        assert "/ occurred about" in browser.wait("document.querySelector('#answer .sentence')?.innerText")
        assert any("503" in problem for problem in browser.problems())  # which the browser tells of by itself
        browser.open("about:blank")


def test_a_service_that_hangs_is_reported(browser, traffic):
    with served(traffic.store.path) as address:
        browser.open(address)
        browser.wait(DRAWN)
        browser.run(LIMITS)
        os.kill(RUNNING[address], signal.SIGSTOP)
        try:
            browser.fill("#ask-key", "/cart")
            browser.click("#ask button")
            browser.wait("document.querySelector('#answer .asof')?.innerText.startsWith('Adding up')")
            assert browser.run("limits.length && limits.every(limit => limit.milliseconds === 30_000)")
            browser.run("limits.forEach(limit => limit.pass())")
            browser.wait("document.querySelector('#answer .wrong')?.innerText.includes('has not responded for 30 seconds')")
            assert not browser.run("document.querySelector('#ask button').disabled")
        finally:
            os.kill(RUNNING[address], signal.SIGCONT)
        browser.open("about:blank")


def test_it_comes_back_when_the_service_does(browser, tmp_path):
    traffic = Traffic(tmp_path / "store", batches=3)
    with served(traffic.store.path) as address:
        browser.open(address)
        browser.wait(DRAWN)
    browser.wait("document.querySelector('#live').dataset.state === 'lost'")
    traffic.step()
    with served(traffic.store.path, port=urlsplit(address).port):
        browser.wait("document.querySelector('#fact-batch').innerText.startsWith('batch 3,')")
        browser.wait(DRAWN)
        browser.open("about:blank")
