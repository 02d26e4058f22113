"""The page that `check --html` writes: it stands by itself, nothing in it runs but its own script, and people can read it.

A browser is driven over a pipe, in Chromium's own protocol; where there is none, those tests are skipped.
"""

import json
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import chatcodec
import strategies as make
from chatcodec.checks.checking import Checked, Report, check
from chatcodec.checks.page import LONGEST_TEXT, lines, page, plain
from chatcodec.errors import CodecError

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg/onload=alert(3)>&lt;b&gt;<!--"
PARAMETERS = {"type": "object", "properties": {HOSTILE: {}}}
TOOL = {"type": "function", "function": {"name": "look", "description": HOSTILE, "parameters": PARAMETERS}}
CALL = {"id": HOSTILE, "type": "function", "function": {"name": "look", "arguments": {"where": HOSTILE}}}
TAGS = set(
    """html head meta title style body header h1 code p main ul li b div h2 table thead tbody tr th td button svg rect span details
    summary h3 pre i dl dt dd footer script""".split()
)
ATTRIBUTES = set(
    """lang charset http-equiv content name class id type data-label data-labels aria-pressed aria-live aria-label aria-hidden role
    viewbox preserveaspectratio width height open tabindex data-m title data-rewritten""".split()
)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

formats = pytest.mark.parametrize("name", chatcodec.list_formats())


def report_of(name: str) -> Report:
    """A report with all there is to show: losses, what none names, refusals, rewritten turns; all texts hostile."""
    fmt, report = chatcodec.get_format(name), Report(name)
    turns: list[dict[str, Any]] = [
        {"role": "system", "content": HOSTILE},
        {"role": "user", "content": f"{HOSTILE}\n\x00\u202eabc\u2066\ud83d naïve 😀"},
        {"role": "assistant", "reasoning_content": HOSTILE, "content": "One\nmoment.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": HOSTILE, "content": HOSTILE},
        {"role": "assistant", "reasoning_content": "Hm.", "content": HOSTILE},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": "x" * 2 * LONGEST_TEXT},
    ]
    report.add(check(fmt, [{"role": "user", "content": "Hello."}]))
    report.add(check(fmt, turns, [TOOL]))
    report.add(check(fmt, turns[:2]))
    report.add(check(fmt, [{"role": "user", "content": [{"type": HOSTILE}]}]), HOSTILE)
    report.add(Checked("refused", error=CodecError(HOSTILE)))
    found = check(fmt, turns[:5], [TOOL])
    found.differences = [each._replace(codes=()) for each in found.differences]
    found.outcome = "unexplained"
    report.add(found)
    return report


class Tree(HTMLParser):
    """What a browser would see: tags, attributes, texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.policy, self.raw, self.text = "", {"style": "", "script": ""}, ""
        self.inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = tag
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.inside in self.raw:
            self.raw[self.inside] += data


# ------------------------------------------------------------------------------------------------------------------- text


@given(make.texts(("<script>", "</pre>", "<!--", "&amp;", '"', "'", "\ud83d", "\u202e", "\u2066", "\ufeff")))
def test_text_is_text(text: str) -> None:
    for write in (plain, lines):
        tree = Tree(f"<pre>{write(text)}</pre>")
        assert set(tree.tags) <= {"pre", "i", "b"}
        shown = tree.text.replace("\\n", "\n") if write is plain else tree.text
        wanted = "".join(each if "<i" not in plain(each) or each == "\n" else each.encode("unicode_escape").decode() for each in text)
        assert shown == (wanted.replace("\\n", "\n") if write is plain else wanted)
    written = lines(text)
    assert not any(character < " " and character != "\n" for character in written)
    assert not any(0x202A <= ord(character) <= 0x202E or 0x2066 <= ord(character) <= 0x2069 for character in written)
    written.encode()


@formats
def test_nothing_of_the_data_becomes_a_tag(name: str) -> None:
    html = page(report_of(name), source=HOSTILE)
    html.encode()
    tree = Tree(html)
    assert set(tree.tags) <= TAGS
    assert {key for key, _ in tree.attributes} <= ATTRIBUTES
    assert tree.tags.count("script") == tree.tags.count("style") == 1
    assert "alert(1)" in tree.text and "alert(" not in tree.raw["script"]
    assert HOSTILE in tree.text.replace("\\n", "\n")


@formats
def test_the_policy_names_its_own_style_and_script_alone(name: str) -> None:
    tree = Tree(page(report_of(name)))
    hashes = {kind: b64encode(sha256(tree.raw[kind].encode()).digest()).decode() for kind in ("style", "script")}
    assert tree.policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert "http://" not in tree.text and "url(" not in tree.raw["style"] and "@import" not in tree.raw["style"]


@formats
def test_the_page_says_what_the_report_says(name: str) -> None:
    report = report_of(name)
    text = Tree(page(report, source="rows.jsonl")).text
    for code, path in report.losses:
        assert code in text and path in text
    assert "rows.jsonl" in text and "unexplained" in text
    assert "more characters" in text, "what is cut is told"
    short = chatcodec.get_format(name).render([{"role": "user", "content": "Hello."}])
    assert short.text in text


# ---------------------------------------------------------------------------------------------------------------- browser


class Browser:
    """A headless Chromium, spoken to over a pair of pipes."""

    def __init__(self, folder: Path) -> None:
        assert BROWSER is not None
        (their_in, self.to), (self.out, their_out) = os.pipe(), os.pipe()
        move = (
            "import fcntl, os, sys; one, two = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]); "
            "os.dup2(one, 3); os.dup2(two, 4); os.execv(sys.argv[3], sys.argv[3:])"
        )
        options = "--headless --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run --disable-extensions".split()
        command = [sys.executable, "-c", move, str(their_in), str(their_out), BROWSER, *options, f"--user-data-dir={folder}"]
        self.process = subprocess.Popen(
            command, pass_fds=(their_in, their_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(their_in)
        os.close(their_out)
        self.number, self.pending, self.events = 0, b"", list[dict[str, Any]]()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def receive(self) -> dict[str, Any]:
        while b"\0" not in self.pending:
            more = os.read(self.out, 1 << 20)
            assert more, "the browser went away"
            self.pending += more
        line, _, self.pending = self.pending.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def wait(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive())

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind, typed in (("keyDown", text), ("keyUp", "")):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=typed)

    def open(self, file: Path) -> None:
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        self.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        self.wait("Page.loadEventFired")

    def stop(self) -> None:
        os.close(self.to)
        self.process.kill()
        self.process.wait()
        os.close(self.out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    started = Browser(tmp_path_factory.mktemp("browser"))
    started.process.poll()
    yield started
    started.stop()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Browser:
    file = tmp_path / "page.html"
    file.write_text(page(report_of("solar_open2"), source="rows.jsonl"), encoding="utf-8")
    browser.open(file)
    return browser


def test_a_browser_has_nothing_to_complain_of(opened: Browser) -> None:
    assert opened.evaluate("document.querySelectorAll('details.example').length") > 3
    assert opened.evaluate("document.querySelectorAll('script').length") == 1
    bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Audits.issueAdded", "Page.javascriptDialogOpening")
    assert [event for event in opened.events if event.get("method") in bad] == []
    asked = [event["params"]["request"]["url"] for event in opened.events if event.get("method") == "Network.requestWillBeSent"]
    assert all(url.startswith("file://") for url in asked) and len(asked) <= 1


def test_the_policy_holds(opened: Browser) -> None:
    forged = "<img src=x onerror='window.forged=1'><p style='color:red' id=red>x</p>"
    opened.evaluate(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(forged)})")
    opened.evaluate("const made = document.createElement('script'); made.textContent = 'window.forged=1'; document.body.append(made)")
    assert opened.evaluate("window.forged") is None
    assert opened.evaluate("getComputedStyle(document.getElementById('red')).color") != "rgb(255, 0, 0)"


def test_every_control_is_reached_and_used_by_keyboard(opened: Browser) -> None:
    wanted = opened.evaluate("document.querySelectorAll('button, summary').length")
    seen = set()
    for _ in range(wanted * 3):
        opened.press("Tab", 9)
        seen.add(opened.evaluate("[...document.querySelectorAll('button, summary')].indexOf(document.activeElement)"))
    assert len(seen - {-1}) == wanted
    opened.evaluate("document.querySelector('.chips button[data-label=refused]').focus()")
    opened.press("Enter", 13, "\r")
    shown = "[...document.querySelectorAll('details.example')].filter(each => !each.hidden)"
    assert opened.evaluate(f"{shown}.every(each => each.dataset.labels.includes('refused'))")
    assert 0 < opened.evaluate(f"{shown}.length") < opened.evaluate("document.querySelectorAll('details.example').length")
    opened.evaluate(f"{shown}[0].querySelector('summary').focus()")
    before = opened.evaluate(f"{shown}[0].open")
    opened.press("Enter", 13, "\r")
    assert opened.evaluate(f"{shown}[0].open") is not before


#: The lowest ratio of contrast between a text and what is behind it, over all elements that hold text.
CONTRAST = """(() => {
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = color => { paint.clearRect(0, 0, 1, 1); paint.fillStyle = color; paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data]; };
  const light = color => color.slice(0, 3).map(each => each / 255)
    .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = element => { for (let each = element; each; each = each.parentElement) {
    const color = rgb(getComputedStyle(each).backgroundColor); if (color[3] > 0) return color; }
    return [255, 255, 255, 255]; };
  let worst = [99, ""];
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some(each => each.nodeType === 3 && each.data.trim())) continue;
    if (["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const [one, two] = [light(rgb(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (two + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.className + " " + element.textContent.slice(0, 40)];
  }
  return worst;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_is_readable_by_day_and_by_night(opened: Browser, scheme: str) -> None:
    opened.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    dark = opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert dark is (scheme == "dark")
    ratio, where = opened.evaluate(CONTRAST)
    assert ratio >= 4.5, where


@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_does_not_run_over(opened: Browser, width: int) -> None:
    opened.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    opened.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_the_generated_stretches_are_underlined(opened: Browser) -> None:
    pair = "[each.classList.contains('g'), getComputedStyle(each).textDecorationLine]"
    found = opened.evaluate(f"[...document.querySelectorAll('pre .s')].map(each => {pair})")
    assert {tuple(each) for each in found} == {(True, "underline"), (False, "none")}
