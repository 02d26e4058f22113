"""The style and the script of the page that `check --html` writes.

Rules of this module: plain constants.  The page's own policy names both by their hashes, so that nothing else in the page can
run or restyle it; a colour is a tint behind text, never the text's own, so that all is readable by day and by night.
"""

#: The hue of every kind of text, in the order of the legend.  Control text is grey, roles have the accent of the page.
HUES = {
    "role": 215,
    "system": 185,
    "tools": 165,
    "option": 250,
    "user": 212,
    "reasoning": 46,
    "content": 128,
    "call": 300,
    "argument_name": 325,
    "argument": 278,
    "arguments": 278,
    "result": 18,
    "media": 95,
}

_TINTS = "".join(f".k-{kind}{{--h:{hue}}}" for kind, hue in HUES.items())

STYLE = (
    """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b2029;--soft:#566071;--line:#d9dee6;--accent:#1f5fbf;
--bar:#5b8def;--good:#18794e;--warn:#8a5a00;--bad:#c0262d;--tint-s:80%;--tint-l:91%;--esc:#b42318}
@media (prefers-color-scheme:dark){:root{--bg:#12151b;--card:#1a1f28;--ink:#e6e9ef;--soft:#a3adbd;--line:#303846;--accent:#8ab4ff;
--bar:#4f7fdc;--good:#4cc38a;--warn:#e5b454;--bad:#ff8b8b;--tint-s:38%;--tint-l:24%;--esc:#ffa198}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main,header{max-width:1500px;margin:0 auto;padding:0 24px}
header{padding-top:28px}
h1{font-size:1.5rem;margin:0}
h2{font-size:1.1rem;margin:32px 0 12px}
h3{font-size:.78rem;margin:0 0 8px;text-transform:uppercase;letter-spacing:.06em;color:var(--soft)}
p{margin:4px 0}
.soft{color:var(--soft)}
code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.cards{display:flex;flex-wrap:wrap;gap:12px;padding:0;margin:20px 0 0;list-style:none}
.cards li{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 18px;min-width:132px}
.cards b{display:block;font-size:1.6rem;line-height:1.2;font-variant-numeric:tabular-nums}
.good b{color:var(--good)}.warn b{color:var(--warn)}.bad b{color:var(--bad)}
table{border-collapse:collapse;width:100%}
th{font-weight:600;text-align:left;color:var(--soft);font-size:.82rem}
th,td{padding:6px 10px;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.panel{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:8px 14px;overflow-x:auto}
.barcell{width:32%;min-width:120px}
.bar{display:block;width:100%;height:12px;margin-top:5px}
.bar rect{fill:var(--bar)}
.bad .bar rect{fill:var(--bad)}
td code{overflow-wrap:anywhere;white-space:pre-wrap}
button{font:inherit;color:var(--accent);background:none;border:1px solid transparent;border-radius:6px;padding:0 6px;margin:0 -7px;
cursor:pointer}
button:hover{border-color:var(--line)}
.chips{display:flex;flex-wrap:wrap;gap:8px;margin:0 0 12px}
.chips button{margin:0;padding:2px 12px;border-color:var(--line);border-radius:99px;background:var(--card)}
button[aria-pressed=true]{background:var(--accent);color:var(--card);border-color:var(--accent)}
.legend{display:flex;flex-wrap:wrap;gap:6px 10px;margin:0 0 14px;font-size:.85rem}
details.example{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:0 0 10px}
summary{cursor:pointer;padding:10px 16px;border-radius:10px;overflow-wrap:anywhere}
.tag{font-size:.78rem;border:1px solid var(--line);border-radius:99px;padding:1px 9px;margin-left:6px;color:var(--soft);white-space:nowrap}
.tag.exact{color:var(--good)}.tag.lossy{color:var(--warn)}.tag.unexplained,.tag.refused{color:var(--bad);font-weight:600}
.sides{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:16px;padding:4px 16px 16px}
.sides>.wide{grid-column:1/-1}
@media (max-width:1000px){.sides{grid-template-columns:minmax(0,1fr)}}
.scroll{max-height:68vh;overflow:auto;border:1px solid var(--line);border-radius:8px;padding:12px;background:var(--bg);margin:0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;line-height:1.65}
.s{unicode-bidi:isolate;background:hsl(var(--h) var(--tint-s) var(--tint-l));border-radius:3px;
-webkit-box-decoration-break:clone;box-decoration-break:clone}
.k-control{background:none;color:var(--soft)}
.k-role{background:none;color:var(--accent);font-weight:600}
.g{text-decoration:underline;text-decoration-thickness:1px;text-underline-offset:4px}
.nl::before{content:"\\21b5";color:var(--soft);opacity:.65}
.esc{color:var(--esc);font-style:normal;border:1px solid;border-radius:3px;padding:0 2px;font-size:.85em}
.lit{box-shadow:0 0 0 1.5px var(--accent)}
.message{border:1px solid var(--line);border-radius:8px;padding:8px 12px;margin:0 0 8px;background:var(--card)}
.message:last-child{margin:0}
.message dl{margin:6px 0 0;display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 12px}
.message dt{color:var(--soft);font-size:.82rem}
.message dd{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
[hidden]{display:none!important}
footer{max-width:1500px;margin:32px auto;padding:0 24px;color:var(--soft);font-size:.85rem}
"""
    + _TINTS
)

SCRIPT = """
"use strict";
const buttons=document.querySelectorAll("button[data-label]"),examples=document.querySelectorAll("details.example");
const count=document.getElementById("shown");
function choose(label){
  let shown=0;
  for(const each of examples){
    each.hidden=label!==""&&!each.dataset.labels.split(" ").includes(label);
    shown+=each.hidden?0:1;
  }
  for(const each of buttons)each.setAttribute("aria-pressed",String(each.dataset.label===label));
  count.textContent=shown+" of "+examples.length+" examples";
}
for(const each of buttons)each.addEventListener("click",()=>{
  choose(each.dataset.label);
  if(each.closest("table"))document.getElementById("examples").scrollIntoView();
});
document.addEventListener("mouseover",event=>{
  for(const each of document.querySelectorAll(".lit"))each.classList.remove("lit");
  const found=event.target.closest("[data-m]"),example=found&&found.closest("details");
  if(example)for(const each of example.querySelectorAll("[data-m]"))
    if(each.dataset.m===found.dataset.m&&each!==found)each.classList.add("lit");
});
choose("");
"""
