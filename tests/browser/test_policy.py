"""The page's policy: even what gets into the page can load, send or run nothing."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.browser.conftest import Reports
from tests.browser.recorded import LEAK
from tests.browser.report_page import SIZE, ReportPage

# What the test tries, run as the page's own code would be, and what the policy said of it.
TRY = """async ([body, url]) => {
  const violations = [];
  const listen = (event) => violations.push(event.effectiveDirective);
  document.addEventListener("securitypolicyviolation", listen);
  const add = (tag, change, parent = document.body) => {
    const node = document.createElement(tag);
    change(node);
    parent.append(node);
    return node;
  };
  const run = "window.hacked = 1";
  const attempts = {
    script: () => add("script", (node) => node.append(run)),
    script_text: () => add("script", (node) => (node.text = run)),
    script_source: () => add("script", (node) => node.setAttribute("src", `${url}/x.js`)),
    markup: () => document.body.insertAdjacentHTML("beforeend", `<img src=x onerror='${run}'>`),
    inner: () => add("div", (node) => (node.innerHTML = "<b>x</b>")),
    handler: () => add("div", (node) => node.setAttribute("onclick", run)).click(),
    style: () => add("style", (node) => node.append("body { display: none }")),
    image: () => add("img", (node) => (node.src = `${url}/x.png`)),
    data_image: () => add("img", (node) => (node.src = "data:image/gif;base64,R0lGODlhAQABAAAAACw=")),
    frame: () => add("iframe", (node) => (node.src = `${url}/`)),
    fetch: () => fetch(`${url}/`),
    beacon: () => navigator.sendBeacon(`${url}/`, "x"),
    request: () => { const one = new XMLHttpRequest(); one.open("GET", `${url}/`); one.send(); },
    socket: () => { new WebSocket(`${url.replace("http", "ws")}/`); },
    worker: () => { new Worker("data:text/javascript,0"); },
    evaluate: () => { (0, eval)(run); },
    compiled: () => { new Function(run)(); },
    timer: () => { setTimeout(run); },
    form: () => add("form", (node) => (node.action = `${url}/`)).submit(),
    base: () => add("base", (node) => (node.href = `${url}/`), document.head),
    font: () => new FontFace("x", `url(${url}/x.woff2)`).load(),
  };
  // From a timer: what the debugger runs itself may use eval.
  const error = await new Promise((done) => setTimeout(async () => {
    try { await attempts[body](); done(""); } catch (thrown) { done(thrown.name); }
  }));
  for (let i = 0; i < 100 && !violations.length; i++) await new Promise((done) => setTimeout(done, 10));
  document.removeEventListener("securitypolicyviolation", listen);
  return { error, violations, hacked: typeof window.hacked, isShown: getComputedStyle(document.body).display !== "none" };
}"""

BLOCKED = {
    "script": "script-src",
    "script_text": "require-trusted-types-for",
    "script_source": "script-src",
    "markup": "require-trusted-types-for",
    "inner": "require-trusted-types-for",
    "handler": "script-src",
    "style": "style-src",
    "image": "img-src",
    "data_image": "img-src",
    "frame": "frame-src",
    "fetch": "connect-src",
    "beacon": "connect-src",
    "request": "connect-src",
    "socket": "connect-src",
    "worker": "worker-src",
    "evaluate": "script-src",
    "compiled": "script-src",
    "timer": "script-src",
    "form": "form-action",
    "base": "base-uri",
    "font": "font-src",
}


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    """Return a server that takes connections and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture(scope="module")
def online(browser: Browser) -> Iterator[BrowserContext]:
    """Return a browser with a network: here the policy alone is in the way."""
    context = browser.new_context(viewport=SIZE)
    yield context
    context.close()


def address_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def was_asked(listener: socket.socket) -> bool:
    """Tell whether a request came in since this was last asked; a connection that a browser opens ahead of one is none."""
    received = b""
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return bool(received)
        with connection:
            connection.settimeout(0.2)
            with contextlib.suppress(TimeoutError, ConnectionError):
                received += connection.recv(100)


@pytest.fixture(scope="module")
def report(online: BrowserContext, reports: Reports) -> ReportPage:
    """Return a page of its own: what is tried here stays in it."""
    return ReportPage(online, reports.of(LEAK), fragment="#nogl").open()


@pytest.mark.parametrize("name", BLOCKED)
def test_what_gets_into_the_page_is_blocked(report: ReportPage, listener: socket.socket, name: str) -> None:
    found = report.page.evaluate(TRY, [name, address_of(listener)])
    assert any(one.startswith((BLOCKED[name], "require-trusted-types-for")) for one in found["violations"]), found
    assert (found["hacked"], found["isShown"]) == ("undefined", True)
    assert not was_asked(listener)


def test_without_the_policy_such_a_request_arrives(online: BrowserContext, listener: socket.socket) -> None:
    page = online.new_page()
    assert (
        page.evaluate(
            "(url) => fetch(url, { mode: 'no-cors', signal: AbortSignal.timeout(200) }).catch((error) => error.name)",
            address_of(listener),
        )
        == "TimeoutError"
    )
    page.close()
    assert was_asked(listener)


def test_the_policy_allows_nothing_but_its_own_script_and_style(report: ReportPage) -> None:
    policy = report.page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].startswith("'sha256-")
    assert rules["style-src"].startswith("'sha256-")
    assert (rules["base-uri"], rules["form-action"], rules["trusted-types"]) == ("'none'",) * 3
    assert rules["require-trusted-types-for"] == "'script'"
    assert not {"unsafe", "http", "data:", "*"} & {word for word in ("unsafe", "http", "data:", "*") if word in policy}


def test_the_policy_comes_before_all_that_it_rules(reports: Reports) -> None:
    page = reports.of(LEAK).read_text("utf-8")
    assert page.index("Content-Security-Policy") < min(
        page.index(tag) for tag in ("<style", "<script", "<title", "<body")
    )
