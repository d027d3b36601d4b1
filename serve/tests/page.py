"""The page at `/`, in headless Chromium: `python3 page.py URL [URL_WITH_KEY KEY] [--screenshots FOLDER]`.

Needs no packages: it talks with the browser through the pipe of its remote debugging. The server's model must answer in lower-case
letters, without an end where nothing limits it (`serve/tests/page.rs` has one).
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Optional

PATIENCE = 60.0
NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]


class Browser:
    """Chromium, and one tab."""

    def __init__(self, program: str, profile: str) -> None:
        theirs_in, self.out = os.pipe()
        self.inp, theirs_out = os.pipe()

        def connect() -> None:
            # Copies first: either may have the other's place.
            a, b = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(a, 3)
            os.dup2(b, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"]
        quiet = subprocess.DEVNULL
        args = [program, *flags, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(args, preexec_fn=connect, close_fds=False, stdout=quiet, stderr=quiet)
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest, self.last, self.session = b"", 0, None
        self.faults: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.inp, 1 << 16)
            if not more:
                raise SystemExit("the browser has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method: str, **params: Any) -> Any:
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            got = self.read()
            if got.get("id") == self.last:
                assert "error" not in got, (method, got["error"])
                return got["result"]
            if got.get("method") == "Runtime.exceptionThrown":
                self.faults.append(json.dumps(got["params"]["exceptionDetails"]))
            if got.get("method") == "Log.entryAdded" and got["params"]["entry"]["level"] == "error":
                self.faults.append(got["params"]["entry"]["text"])

    def js(self, expression: str) -> Any:
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, (expression, got["exceptionDetails"])
        return got["result"].get("value")

    def wait(self, expression: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.js(expression):
            shown = self.js("document.body.innerText")
            assert time.monotonic() < end, f"{expression} did not come true:\n{shown}\n{self.faults}"
            time.sleep(0.05)

    def key(self, name: str, code: int, text: str = "") -> None:
        key = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def enter(self) -> None:
        self.key("Enter", 13, "\r")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && !!document.getElementById('prompt')")

    def shot(self, folder: Optional[pathlib.Path], name: str) -> None:
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.png").write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


ARTICLES = "[...document.querySelectorAll('article')].map((a) => [a.className, a.querySelector('p')?.textContent ?? ''])"
# The contrast of an element's text to the first opaque ground below it, as WCAG 2 has it.
CONTRAST = """(() => {
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!c.endsWith(', 0)')) return c; } return 'rgb(255, 255, 255)'; };
  const of = (e) => { const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
  return [...document.querySelectorAll('h1, h2, h3, p, label, button, textarea, input, select, summary, dt, dd, #status')]
    .filter((e) => e.offsetParent && !e.disabled).map((e) => [e.tagName + '#' + e.id, of(e)]).filter(([, c]) => c < 4.5);
})()"""


def set_field(b: Browser, name: str, value: str) -> None:
    b.js(f"{name}.value = {json.dumps(value)}; {name}.dispatchEvent(new Event('change'))")


def talks(b: Browser, shots: Optional[pathlib.Path]) -> None:
    b.wait("document.body.dataset.ready === 'true'")
    assert b.js("document.activeElement.id") == "prompt", "typing begins at once"
    set_field(b, "most", "30")
    b.type("hello")
    b.enter()
    b.wait("document.getElementById('status').textContent.startsWith('Answered')")
    said = b.js(ARTICLES)
    assert said[0] == ["user", "hello"], said
    assert said[1][0] == "assistant" and len(said[1][1]) == 30 and said[1][1].islower(), said
    # Nothing that is typed becomes a part of the page.
    b.type("<img src=x onerror=alert(1)>")
    b.enter()
    b.wait("document.querySelectorAll('article').length === 4 && !document.getElementById('send').disabled")
    assert b.js("document.images.length") == 0
    b.js("document.body.append(article({ role: 'assistant', content: 'x', reasoning: 'because' }))")
    assert b.js("document.body.lastChild.querySelector('details').innerText") == "Reasoning", "it is folded away"
    assert b.js("document.body.lastChild.textContent") == "ModelReasoningbecausex"
    b.js("document.body.lastChild.remove()")
    b.shot(shots, "light")


def stops(b: Browser) -> None:
    set_field(b, "most", "")
    b.type("endless")
    b.enter()
    b.wait("document.querySelectorAll('article.assistant').length === 3 && [...document.querySelectorAll('article p')].at(-1).textContent.length > 5")
    b.key("Escape", 27)
    b.wait("document.getElementById('status').textContent === 'Stopped.'")
    first = b.js(ARTICLES)[-1][1]
    b.js("document.getElementById('again').click()")
    b.wait("document.getElementById('status').textContent === 'Answering…' && !document.getElementById('stop').disabled")
    b.wait("[...document.querySelectorAll('article p')].at(-1).textContent.length > 5")
    b.js("document.getElementById('stop').click()")
    b.wait("document.getElementById('status').textContent === 'Stopped.'")
    assert first and b.js("document.querySelectorAll('article').length") == 6, "an answer takes the other's place"


def remembers(b: Browser, url: str) -> None:
    before = b.js(ARTICLES)
    b.open(url)
    b.wait("document.body.dataset.ready === 'true'")
    assert b.js(ARTICLES) == [], "a new conversation"
    b.js("[...document.querySelectorAll('#conversations button')].find((b) => b.textContent === 'hello').click()")
    assert b.js(ARTICLES) == before
    b.js("document.querySelector('#conversations button[aria-label*=hello]').click()")
    b.open(url)
    b.wait("document.body.dataset.ready === 'true'")
    assert "hello" not in b.js("document.getElementById('conversations').textContent"), "it is deleted"


def describes(b: Browser, shots: Optional[pathlib.Path]) -> None:
    b.js("for (const d of document.querySelectorAll('details')) d.open = true")
    b.wait("/generated\\s*[1-9]\\d* tokens/.test(document.getElementById('counts').innerText)")
    b.wait("document.getElementById('facts').innerText.includes('weights bytes')")
    for scheme in ("light", "dark"):
        b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        assert b.js(CONTRAST) == [], (scheme, b.js(CONTRAST))
    b.shot(shots, "dark")
    b.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
    assert b.js("document.documentElement.scrollWidth <= innerWidth"), "no scrolling sideways on a small screen"
    b.shot(shots, "small")
    b.call("Emulation.clearDeviceMetricsOverride")


def is_accessible(b: Browser) -> None:
    roles = {"button", "textbox", "combobox", "spinbutton", "DisclosureTriangle", "log", "status", "navigation"}
    nodes = [n for n in b.call("Accessibility.getFullAXTree")["nodes"] if n.get("role", {}).get("value") in roles]
    nameless = [n for n in nodes if n["role"]["value"] != "status" and not n.get("name", {}).get("value")]
    assert len(nodes) > 12 and not nameless, nameless
    b.js("document.activeElement.blur()")
    reached = []
    for _ in range(30):
        b.key("Tab", 9)
        reached.append(b.js("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
        outline = b.js("document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'")
        assert outline, f"{reached[-1]} shows no focus"
    for name in ("skip", "model", "new", "system", "temperature", "most", "seed", "messages", "prompt", "send"):
        assert name in reached, (name, reached)


def is_strict(b: Browser) -> None:
    faults = len(b.faults)
    b.js("const s = document.createElement('script'); s.textContent = 'window.broken = true'; document.body.append(s)")
    b.js("fetch('https://example.invalid/').catch(() => 0)")
    assert b.js("window.broken") is None, "a script without the nonce runs"
    b.js("0")
    assert any("Content Security Policy" in fault for fault in b.faults[faults:]), b.faults
    del b.faults[faults:]


def wants_key(b: Browser, url: str, key: str) -> None:
    b.open(url)
    b.wait("document.getElementById('ask').open")
    b.js("document.getElementById('secret').focus()")
    b.type(key)
    b.enter()
    b.wait("document.body.dataset.ready === 'true'")
    set_field(b, "most", "5")
    b.js("document.getElementById('prompt').focus()")
    b.type("hi")
    b.enter()
    b.wait("document.getElementById('status').textContent.startsWith('Answered')")
    assert key not in b.js("JSON.stringify(localStorage)"), "the key is not kept"
    b.faults = [fault for fault in b.faults if "401" not in fault]


def main() -> None:
    args = sys.argv[1:]
    shots = None
    if "--screenshots" in args:
        at = args.index("--screenshots")
        shots = pathlib.Path(args[at + 1])
        del args[at : at + 2]
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        print("skipped: there is no Chromium here (Debian: apt-get install chromium)")
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        b = Browser(program, profile)
        try:
            b.open(args[0])
            steps: list[Callable[[], None]] = [
                lambda: talks(b, shots),
                lambda: stops(b),
                lambda: remembers(b, args[0]),
                lambda: describes(b, shots),
                lambda: is_accessible(b),
                lambda: is_strict(b),
            ]
            if len(args) > 2:
                steps.append(lambda: wants_key(b, args[1], args[2]))
            for step in steps:
                step()
            assert not b.faults, b.faults
        finally:
            b.close()
    print("all right")


main()
