"""A report of `check` as one page of HTML that stands by itself.

Rules of this module:

* nothing is loaded from anywhere: style and script are in the page, and its policy forbids all else;
* every text is hostile: it is escaped, and characters that cannot be seen or that move others are shown as their escapes;
* what is long is cut, and the page says by how much.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from typing import Any

from ..messages import Message
from ..wire import Rendered
from .checking import OUTCOMES, REWRITTEN, UNEXPLAINED, Checked, Kept, Report
from .comparing import Difference, shown
from .page_assets import HUES, SCRIPT, STYLE

LONGEST_TEXT = 40_000  #: characters of a text that are shown
LONGEST_VALUE = 2_000  #: characters of a value that are shown
MOST_DIFFERENCES = 200  #: lines in the table of an example
MOST_MESSAGES = 200

# C0 but the newline, DEL and C1, the blanks that look like others, what is invisible or turns the direction, half surrogates.
_UNSEEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u2000-\u200b\u200e\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ud800-\udfff"
    "\ufeff\uffa0\ufff0-\uffff\U000e0000-\U000e0fff]"
)
_CARDS = {"exact": "good", "lossy": "warn", "unexplained": "bad", "refused": "bad"}
_TOLD = {
    "exact": "came back as given",
    "lossy": "losses name the rest",
    "unexplained": "no loss names it",
    "refused": "cannot be rendered",
}


def page(report: Report, *, source: str = "") -> str:
    """The report as an HTML document; `source` is what was checked, for its head."""
    policy = f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; base-uri 'none'; form-action 'none'"
    title = f"chatcodec check {report.format}"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{plain(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>Does it come back? <code>{plain(report.format)}</code></h1>\n"
        f'<p class="soft">{plain(source)}{" · " if source else ""}every conversation rendered, read back and compared</p>\n</header>\n'
        f"<main>\n{_totals(report)}\n{_losses(report)}\n{_refusals(report)}\n{_examples(report.examples)}\n</main>\n"
        "<footer>Written by chatcodec. It holds all that it shows and loads nothing.</footer>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def plain(text: str) -> str:
    """A text as HTML, all on one line, with what cannot be seen as escapes."""
    return _marked(text).replace("\n", '<i class="esc">\\n</i>')


def lines(text: str) -> str:
    """A text as HTML in its own lines, each line's end marked."""
    return _marked(text).replace("\n", '<b class="nl"></b>\n')


def _marked(text: str) -> str:
    return _UNSEEN.sub(lambda found: f'<i class="esc">{found[0].encode("unicode_escape").decode()}</i>', escape(text))


def cut(text: str, most: int) -> tuple[str, str]:
    """The beginning of a text, and a note on how much more there is, if there is more."""
    return (text, "") if len(text) <= most else (text[:most], f"… {len(text) - most:,} more characters")


# --------------------------------------------------------------------------------------------------------------- summary


def _totals(report: Report) -> str:
    cards = [f"<li><b>{report.rows:,}</b>rows</li>"]
    for outcome in OUTCOMES:
        count = report.outcomes[outcome]
        kind = _CARDS[outcome] if count else ""
        cards.append(f'<li class="{kind}"><b>{count:,}</b>{outcome}<div class="soft">{_TOLD[outcome]}</div></li>')
    kept = report.turns - report.rewritten
    kind = "warn" if report.rewritten else "good" if report.turns else ""
    passed = f", {report.passed_over:,} not looked at" if report.passed_over else ""
    cards.append(f'<li class="{kind}"><b>{kept:,}</b>append-only<div class="soft">of {report.turns:,} assistant turns{passed}</div></li>')
    return f'<ul class="cards">{"".join(cards)}</ul>'


def _losses(report: Report) -> str:
    """A table of losses and unexplained differences, by code and path, with bars."""
    unexplained = {place: count for place, count in report.differences.items() if place[0] == UNEXPLAINED}
    counted: list[tuple[tuple[str, str], int]] = sorted(unexplained.items(), key=lambda item: (-item[1], item[0]))
    counted += sorted(report.losses.items(), key=lambda item: (-item[1], item[0]))
    if not counted:
        return '<h2>Losses</h2>\n<p class="soft">None: every row came back as it was given.</p>'
    most = max(count for _, count in counted)
    rows = []
    for (code, path), count in counted:
        width = max(1.0, 100 * count / most)
        found = report.rows_by_loss[code, path]
        kind = ' class="bad"' if code == UNEXPLAINED else ""
        rows.append(
            f"<tr{kind}>"
            f'<td><button type="button" data-label="{escape(code)}" aria-pressed="false">{plain(code)}</button></td>'
            f"<td><code>{plain(path)}</code></td>"
            '<td class="barcell"><svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect width="{width:.2f}" height="8"/></svg></td>'
            f'<td class="n">{count:,}</td><td class="n">{f"{found:,}" if found else ""}</td></tr>'
        )
    head = '<tr><th>code</th><th>path</th><th class="barcell"></th><th class="n">count</th><th class="n">rows</th></tr>'
    return f'<h2>Losses by code</h2>\n<div class="panel"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def _refusals(report: Report) -> str:
    if not report.refusals:
        return ""
    counted = sorted(report.refusals.items(), key=lambda item: (-item[1], item[0]))
    rows = "".join(
        f"<tr><td>{plain(code)}</td><td><code>{plain(path)}</code></td><td>{plain(cut(reason, LONGEST_VALUE)[0])}</td>"
        f'<td class="n">{count:,}</td></tr>'
        for (code, path, reason), count in counted
    )
    head = '<tr><th>code</th><th>path</th><th>reason</th><th class="n">rows</th></tr>'
    return f'<h2>Rows that cannot be rendered</h2>\n<div class="panel"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


# -------------------------------------------------------------------------------------------------------------- examples


def _examples(examples: Sequence[Kept]) -> str:
    labels = sorted({label for each in examples for label in each.checked.labels}, key=lambda label: (label not in OUTCOMES, label))
    chips = "".join(
        f'<button type="button" data-label="{escape(label)}" aria-pressed="false">{plain(label.replace("_", " ") or "all")}</button>'
        for label in ["", *labels]
    )
    kinds = "".join(f'<span><span class="s k-{kind}">{kind.replace("_", " ")}</span></span>' for kind in ("control", *HUES))
    shown_examples = "\n".join(_example(each, first=not number) for number, each in enumerate(examples))
    return (
        '<h2 id="examples">Examples <span class="soft" id="shown" aria-live="polite"></span></h2>\n'
        f'<div class="chips" role="group" aria-label="Show the examples of">{chips}</div>\n'
        f'<div class="legend mono" aria-label="Legend">{kinds}<span class="g">generated</span></div>\n{shown_examples}'
    )


def _example(kept: Kept, *, first: bool) -> str:
    row, checked = kept
    codes = sorted(checked.labels - {checked.outcome})
    tags = "".join(f'<span class="tag">{plain(code)}</span>' for code in codes)
    body = _refused(checked) if checked.rendered is None else _sides(checked, checked.rendered)
    return (
        f'<details class="example" data-labels="{escape(" ".join(sorted(checked.labels)))}"{" open" if first else ""}>'
        f'<summary>row {plain(row)}<span class="tag {checked.outcome}">{checked.outcome}</span>{tags}</summary>'
        f'<div class="sides">{body}</div></details>'
    )


def _refused(checked: Checked) -> str:
    return f'<div class="wide"><h3>Why not</h3><p class="mono">{plain(cut(str(checked.error), LONGEST_VALUE)[0])}</p></div>'


def _sides(checked: Checked, rendered: Rendered) -> str:
    messages = checked.read.messages if checked.read else []
    paired = len(messages) == len(rendered._messages)  # only then is one of the text's messages the one of that number here
    read = "".join(_message(index, message, paired) for index, message in enumerate(messages[:MOST_MESSAGES]))
    more = len(messages) - MOST_MESSAGES
    note = f'<p class="soft">… {more:,} more messages</p>' if more > 0 else ""
    unread = '<p class="soft">The text could not be read back.</p>'
    return (
        f'<div><h3>The text</h3><div class="scroll" tabindex="0" role="region" aria-label="The text">{_wire(rendered)}</div></div>'
        f'<div><h3>Read back</h3><div class="scroll" tabindex="0" role="region" aria-label="Read back">{read or unread}{note}</div></div>'
        f'<div class="wide"><h3>What is different</h3>{_differences(checked)}</div>'
    )


def _wire(rendered: Rendered) -> str:
    text, note = cut(rendered.text, LONGEST_TEXT)
    pieces = []
    for start, end, kind, message, _, generated in rendered.spans:
        if start >= len(text):
            break
        where = f' data-m="{message}"' if message is not None else ""
        told = f"{kind.replace('_', ' ')}{f', messages[{message}]' if message is not None else ''}{', generated' if generated else ''}"
        pieces.append(f'<span class="s k-{kind}{" g" if generated else ""}"{where} title="{told}">{lines(text[start:end])}</span>')
    return f"<pre>{''.join(pieces)}</pre>" + (f'<p class="soft">{note}</p>' if note else "")


def _message(index: int, message: Message, paired: bool) -> str:
    given = message.model_dump()
    role = given.pop("role")
    calls = given.pop("tool_calls", ())
    rows = [(key, value if isinstance(value, str) else shown(value)) for key, value in given.items() if value is not None]
    for call in calls:
        rows.append((f"call {call['function']['name']}", shown(call["function"]["arguments"])))
    told = "".join(f"<dt>{plain(key)}</dt><dd>{_value(value)}</dd>" for key, value in rows)
    place = f' data-m="{index}"' if paired else ""
    return f'<div class="message"{place}><b>{plain(role)}</b> <span class="soft">messages[{index}]</span><dl>{told}</dl></div>'


def _value(text: str) -> str:
    if not text:
        return '<span class="soft">(empty)</span>'
    kept, note = cut(text, LONGEST_VALUE)
    return lines(kept) + (f' <span class="soft">{note}</span>' if note else "")


def _differences(checked: Checked) -> str:
    parts = [_difference_table(checked.differences), _loss_list(checked)]
    if checked.rewritten:
        turns = "".join(
            f"<tr><td><code>messages[{index}]</code></td><td><code>{plain(alone)}</code></td><td><code>{plain(whole)}</code></td></tr>"
            for index, _, alone, whole in checked.rewritten[:MOST_DIFFERENCES]
        )
        head = "<tr><th>not append-only</th><th>the turn's own text from there</th><th>the whole text from there</th></tr>"
        parts.append(f'<div class="panel" data-rewritten="{REWRITTEN}"><table><thead>{head}</thead><tbody>{turns}</tbody></table></div>')
    return "".join(filter(None, parts)) or '<p class="soft">Nothing.</p>'


def _difference_table(differences: Sequence[Difference]) -> str:
    if not differences:
        return ""
    rows = "".join(
        f"<tr><td><code>{plain(path)}</code></td><td><code>{_value(given)}</code></td><td><code>{_value(read)}</code></td>"
        f"<td>{_codes(codes)}</td></tr>"
        for path, given, read, codes in differences[:MOST_DIFFERENCES]
    )
    more = len(differences) - MOST_DIFFERENCES
    note = f'<p class="soft">… {more:,} more differences</p>' if more > 0 else ""
    head = "<tr><th>path</th><th>given</th><th>read back</th><th>named by</th></tr>"
    return f'<div class="panel"><table><thead>{head}</thead><tbody>{rows}</tbody></table>{note}</div>'


def _codes(codes: Iterable[str]) -> str:
    named = [f'<span class="tag">{plain(code)}</span>' for code in codes]
    return "".join(named) or f'<span class="tag unexplained">{UNEXPLAINED}</span>'


def _loss_list(checked: Checked) -> str:
    """The losses that no difference shows, such as ids: any ids will do."""
    told = {code for difference in checked.differences for code in difference.codes}
    rest: list[Any] = [loss for loss in checked.losses if loss.code not in told]
    if not rest:
        return ""
    items = ", ".join(f"{plain(loss.code)} at <code>{plain(loss.path)}</code>" for loss in rest[:MOST_DIFFERENCES])
    return f'<p class="soft">Named besides, without a difference that shows: {items}</p>'
