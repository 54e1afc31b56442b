"""How the page looks, on light and on dark grounds."""

from __future__ import annotations

STYLE = """\
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2329; --faint: #5b6570; --line: #d9dee3; --panel: #f6f8fa;
  --trained: #cdeccf; --under: #2c7a34; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181c; --ink: #e3e7eb; --faint: #9aa5b0; --line: #323a42; --panel: #1c2228;
    --trained: #1f4a2a; --under: #69c277; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
header, main { max-width: 72rem; margin: 0 auto; padding: 0 1.5rem; }
header { padding-top: 1.5rem; }
h1 { margin: 0; font-size: 1.7rem; }
header p, .about { margin: 0.2rem 0; color: var(--faint); overflow-wrap: anywhere; }
h2 { margin: 2.2rem 0 0.6rem; padding-bottom: 0.2rem; border-bottom: 1px solid var(--line); font-size: 1.25rem; }
h3 { margin: 1.6rem 0 0; font-size: 1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
th, td { padding: 0.2rem 1.5rem 0.2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: normal; color: var(--faint); }
.numbers td { text-align: right; padding-right: 0; font-variant-numeric: tabular-nums; }
.made { font-size: 0.85rem; }
.made td { overflow-wrap: anywhere; white-space: pre-wrap; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.2rem; }
figure { margin: 0; padding: 0.8rem; border: 1px solid var(--line); border-radius: 6px; background: var(--panel); }
svg { display: block; width: 100%; height: auto; color: var(--faint); }
figcaption { margin-top: 0.5rem; font-size: 0.9rem; }
pre { margin: 0.4rem 0 0; padding: 0.8rem; border: 1px solid var(--line); border-radius: 6px; background: var(--panel);
  font: 0.9rem/1.8 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
mark { background: var(--trained); color: inherit; text-decoration: underline; text-decoration-color: var(--under);
  text-decoration-thickness: 2px; text-underline-offset: 5px; }
pre span:hover { outline: 1px solid var(--faint); }
"""
