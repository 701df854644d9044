"""Owns the report as a page: one HTML file without scripts, links or anything to load.

Every text is escaped, also those that Windlass itself has written.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from windlass.chaos.laws.verdict import Standing, Verdict
from windlass.chaos.plan import DESCRIPTIONS
from windlass.chaos.report.report import Report, StrikeReport
from windlass.chaos.report.text import memory_of, summary
from windlass.core.values.text import inert

_WIDTH, _LEFT, _ROW, _CHART = 1_000, 190, 18, 70
_FAULT_COLUMNS = ("at", "fault", "lasted", "first start", "interrupted", "p50", "max", "")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --ok: #18794e; --bad: #c62828; --dim: #6b7280; --fault: #d97706;
        --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto;
       padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
         vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.kept { color: var(--ok) } .broken { color: var(--bad); font-weight: bold }
.dim { color: var(--dim) } td { overflow-wrap: anywhere }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: currentColor }
.fault { fill: var(--fault) } .back { fill: var(--ok) }
.first { fill: none; stroke: var(--ok); stroke-width: 1.5 } .done { fill: var(--dim); opacity: .5 }
.axis { stroke: var(--line) }
"""


def page_of(report: Report) -> str:
    """Return the whole page."""
    title = f"windlass chaos on {report.store}, seed {report.seed}"
    state = "kept" if report.ok else "broken"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>",
            f'<h1>{_text(title)}</h1><p class="{state}">{_text(summary(report))}</p>',
            *_figures(report),
            "<h2>Timeline</h2>",
            *_timeline(report),
            "<h2>Laws</h2>",
            *_laws(report),
            "<h2>Faults</h2>",
            *_faults(report),
            "</body></html>\n",
        ]
    )


def _text(value: object) -> str:
    return escape(inert(str(value)), quote=True)


def _row(*cells: object, tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{_text(cell)}</{tag}>" for cell in cells) + "</tr>"


def _figures(report: Report) -> Iterator[str]:
    outcomes = ", ".join(f"{count:,} {state}" for state, count in sorted(report.outcomes.items()))
    yield "<table>"
    yield _row("began", report.started_at.isoformat(" ", "seconds"))
    yield _row("release", report.version)
    if report.is_cut_short:
        yield _row("ended", "by Ctrl-C, before its time")
    yield _row("acknowledged", f"{report.accepted:,} jobs in {report.seconds:.0f} s")
    yield _row("in the store", outcomes)
    yield _row("runs", f"{report.runs:,}")
    yield _row("refused or uncertain calls", f"{report.refused:,}")
    yield _row("lease", f"{report.lease:g} s")
    if memory := memory_of(report):
        yield _row("memory", memory)
    yield _row("the same faults again", report.command)
    if report.directory:
        yield _row("ledger and logs", report.directory)
    yield "</table>"


def _laws(report: Report) -> Iterator[str]:
    yield "<table>" + _row("law", "", "promise", "checked", tag="th")
    for verdict in report.verdicts:
        yield from _law(verdict)
    yield "</table>"


def _law(verdict: Verdict) -> Iterator[str]:
    style = {Standing.KEPT: "kept", Standing.BROKEN: "broken"}.get(verdict.standing, "dim")
    yield (
        f'<tr><td>{_text(verdict.law)}</td><td class="{style}">{_text(verdict.standing)}</td>'
        f"<td>{_text(verdict.promise)}"
    )
    if verdict.note:
        yield f'<div class="dim">{_text(verdict.note)}</div>'
    for each in verdict.violations:
        yield f'<div class="broken">{_text(each.subject)}: {_text(each.problem)}</div>'
    if verdict.count > len(verdict.violations):
        yield f"<div>and {verdict.count - len(verdict.violations):,} more</div>"
    yield f'</td><td class="number">{verdict.checked:,}</td></tr>'


def _faults(report: Report) -> Iterator[str]:
    yield "<table>" + _row(*_FAULT_COLUMNS, tag="th")
    for each in report.strikes:
        again = (f"{each.recovery_p50:.2f} s", f"{each.recovery_max:.2f} s")
        times = again if each.interrupted else ("", "")
        lasted = f"{each.ended - each.began:.1f} s"
        note = "; ".join(filter(None, (DESCRIPTIONS.get(each.fault), each.note)))
        start = "" if each.first_start is None else f"{each.first_start:.2f} s"
        yield _row(f"{each.began:.1f} s", each.fault, lasted, start, each.interrupted, *times, note)
    for fault, reason in report.impossible.items():
        yield _row("not thrown", fault, "", "", "", "", "", reason)
    yield "</table>"


# -- the timeline ------------------------------------------------------------------------------


def _timeline(report: Report) -> Iterator[str]:
    """Draw the work done, and a row for each fault with the moments at which its jobs ran again."""
    span = max(report.seconds, 1.0)
    height = _CHART + _ROW * (len(report.strikes) + 2)
    yield f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline of faults">'
    yield from _work(report, span)
    for row, strike in enumerate(report.strikes):
        yield from _strike(strike, _CHART + _ROW * (row + 1), span)
    yield from _axis(span, height)
    yield "</svg>"
    yield (
        '<p class="dim">Above: handlers that came to their end, second by second. Below: each '
        "fault while it lasted, a circle where the first job started after it, and a dot where a "
        "job that it had interrupted ran again.</p>"
    )


def _x(seconds: float, span: float) -> float:
    return round(_LEFT + (_WIDTH - _LEFT - 10) * min(max(seconds / span, 0.0), 1.0), 1)


def _work(report: Report, span: float) -> Iterator[str]:
    most = max(report.throughput, default=0) or 1
    for second, count in enumerate(report.throughput):
        left, right = _x(second, span), _x(second + 1, span)
        tall = round(count / most * (_CHART - 15), 1)
        wide = max(right - left, 0.5)
        yield (
            f'<rect class="done" x="{left}" y="{_CHART - tall:.1f}" width="{wide:.1f}" '
            f'height="{tall}"><title>{count} in second {second}</title></rect>'
        )
    yield f'<text x="0" y="{_CHART - 5}">work done, at most {most}/s</text>'


def _strike(strike: StrikeReport, y: int, span: float) -> Iterator[str]:
    left, right = _x(strike.began, span), _x(strike.ended, span)
    yield f'<text x="0" y="{y + 11}">{strike.number}. {_text(strike.fault)}</text>'
    wide = max(right - left, 3)
    yield (
        f'<rect class="fault" x="{left}" y="{y + 3}" width="{wide:.1f}" height="10">'
        f"<title>{_text(strike.note)}</title></rect>"
    )
    if strike.first_start_at is not None:
        x = _x(strike.first_start_at, span)
        yield f'<circle class="first" cx="{x}" cy="{y + 8}" r="5"></circle>'
    for moment in strike.back:
        yield f'<circle class="back" cx="{_x(moment, span)}" cy="{y + 8}" r="3"></circle>'


def _axis(span: float, height: int) -> Iterator[str]:
    for part in range(5):
        seconds = span * part / 4
        x = _x(seconds, span)
        yield f'<line class="axis" x1="{x}" y1="0" x2="{x}" y2="{height - _ROW}"></line>'
        anchor = "end" if part == 4 else "start"
        yield f'<text x="{x}" y="{height - 4}" text-anchor="{anchor}">{seconds:.0f} s</text>'
