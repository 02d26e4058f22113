"""`chatcodec show`: a conversation as its tokens, with kinds in colours, token borders and the loss mask.

Rules of this module:

* a token is shown with a border behind it; one that is trained on is underlined, and a control token is bold;
* no control character of the text reaches the terminal, and none of its markup the page;
* what a token is, is said by `encoding` and `masks`; here it is only shown.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ..cli_io import FormatName, Options, Pretty, admitted, as_options, for_eyes, json_line, manners, read_conversation, write
from ..errors import CodecError
from ..formats import get_format
from ..tokens.encoding import Encoded, encode
from ..tokens.masks import AssistantMask, mask_of

BORDER = "│"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(name="show", epilog="Example: chatcodec show qwen3_5 chat.json --tokenizer tokenizer.json --html tokens.html")(command)


@manners()
def command(
    format: FormatName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A conversation as JSON; `-` is standard input.")],
    tokenizer: Annotated[str, typer.Option(metavar="FILE", help="The model's tokenizer.json, or the directory that holds it.")],
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page of HTML there that needs nothing else.")] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Encode control tokens that are missing as text.")] = False,
    option: Options = None,
    pretty: Pretty = None,
) -> None:
    """Show the tokens of a conversation: kinds in colours, token borders, and underlined what is trained on.

    A pipe gets JSON, an object with a list for each thing that is known of the tokens.
    """
    from ..tokens.tokenizing import load_tokenizer

    codec = get_format(format)
    messages, tools, options = read_conversation(file)
    rendered = codec.render(messages, tools=tools, **admitted(options | as_options(option), codec))
    encoded = encode(rendered, load_tokenizer(tokenizer), allow_missing=allow_missing)
    mask = mask_of(encoded)
    if html is not None:
        try:
            Path(html).write_bytes(page(encoded, mask).encode())
        except OSError as error:
            raise CodecError(f"{html!r}: {error.strerror or error}") from None
    if for_eyes(pretty):
        write(terminal(encoded, mask))
    elif html is None or pretty is False:
        known = {"ids": encoded.ids, "offsets": encoded.offsets, "kinds": encoded.kinds, "messages": encoded.messages}
        write(json_line({"text": rendered.text, **known, "mask": list(mask), "left_out": mask.left_out}))


class Shown(NamedTuple):
    """A token to show: its text, what it is, and how much of it was shown with the token before it."""

    text: str
    id: int
    kind: str
    message: int | None
    trained: bool
    control: bool


def tokens(encoded: Encoded, mask: AssistantMask) -> Iterator[Shown]:
    """The tokens with their texts.  A character that is spread over several tokens is shown with the first of them."""
    control, done = set(encoded.controls), 0
    for number, (_, end) in enumerate(encoded.offsets):
        text = encoded.rendered.text[done:end]
        done = max(done, end)
        yield Shown(text, encoded.ids[number], encoded.kinds[number], encoded.messages[number], bool(mask[number]), number in control)


def _counted(encoded: Encoded, mask: AssistantMask) -> str:
    left_out = f", turns left out: {', '.join(map(str, mask.left_out))}" if mask.left_out else ""
    return f"{len(encoded.ids):,} tokens, {sum(mask):,} trained on{left_out}"


def terminal(encoded: Encoded, mask: AssistantMask) -> str:
    """The tokens for a terminal."""
    from rich.text import Text

    from ..terminal import STYLES, _printed, visible

    painted = Text()
    seen: dict[str, None] = {}
    for token in tokens(encoded, mask):
        style = STYLES["control" if token.kind == "media" else token.kind]
        seen.setdefault(token.kind)
        painted.append(visible(token.text, keep="\n"), f"{style}{' bold' * token.control}{' underline' * token.trained}")
        painted.append(BORDER, "bright_black")
    legend = Text(" ").join([*(Text(kind, STYLES[kind]) for kind in STYLES if kind in seen), Text("trained on", "underline")])
    return _printed(legend, painted, Text(_counted(encoded, mask)))


def page(encoded: Encoded, mask: AssistantMask) -> str:
    """The tokens as an HTML document that loads nothing and runs nothing."""
    from ..checks.page import lines
    from ..checks.page_assets import HUES

    own = "".join(f".k-{kind}{{--h:{hue}}}" for kind, hue in HUES.items())
    pieces = []
    for token in tokens(encoded, mask):
        told = f"{token.id} · {token.kind.replace('_', ' ')}" + (f" · messages[{token.message}]" if token.message is not None else "")
        names = f"t k-{token.kind}{' c' * token.control}{' m' * token.trained}"
        pieces.append(f'<span class="{names}" title="{told}{" · trained on" * token.trained}">{lines(token.text)}</span>')
    seen = [kind for kind in HUES if kind in encoded.kinds]
    legend = " ".join(f'<span class="t k-{kind}">{kind.replace("_", " ")}</span>' for kind in seen)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>chatcodec show {escape(encoded.rendered.format)}</title>\n<style>{STYLE}{own}</style>\n</head>\n<body>\n"
        f"<h1>Tokens of <code>{escape(encoded.rendered.format)}</code></h1>\n<p>{_counted(encoded, mask)}</p>\n"
        f'<p>{legend} <span class="t m">trained on</span> <span class="t c">control token</span></p>\n'
        f"<pre>{''.join(pieces)}</pre>\n</body>\n</html>\n"
    )


STYLE = """
:root{color-scheme:light dark;--l:90%;--s:70%;--line:#8a93a3}
@media (prefers-color-scheme:dark){:root{--l:24%;--s:35%;--line:#6b7688}}
body{margin:24px auto;max-width:1200px;padding:0 24px;font:15px/1.6 system-ui,sans-serif}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:14px/2 ui-monospace,monospace}
.t{border-right:1px solid var(--line);background:hsl(var(--h,0) calc(var(--s)*var(--has,1)) var(--l))}
.t.k-control,.t.c:not([title]),.t.m:not([title]){background:none}
.c{font-weight:bold}.m{text-decoration:underline;text-decoration-thickness:2px;text-underline-offset:4px}
.nl::after{content:"↵";opacity:.5}.esc{opacity:.6}
"""
