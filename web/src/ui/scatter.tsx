// Points with an interval each, on logarithmic axes: prices and speeds span orders of magnitude.
import { useState } from "preact/hooks";
import { t } from "../i18n";

export interface Point { x: number; y: number; low: number; high: number; label: string; text: string }

const kW = 900, kH = 360, kLeft = 64, kBottom = 44, kTop = 14, kRight = 20;

function ticks(min: number, max: number): number[] {
  const out: number[] = [];
  for (let e = Math.floor(Math.log10(min)); e <= Math.ceil(Math.log10(max)); e++) for (const m of [1, 2, 5]) {
    const v = m * 10 ** e;
    if (v >= min * 0.999 && v <= max * 1.001) out.push(v);
  }
  return out;
}

export function Scatter({ points, x, y, showX, showY }: { points: Point[]; x: string; y: string; showX: (v: number) => string; showY: (v: number) => string }) {
  const [at, setAt] = useState<Point | null>(null);
  const xs = points.map((p) => p.x), lows = points.map((p) => Math.max(p.low, 1e-3));
  const x0 = Math.min(...xs) / 1.3, x1 = Math.max(...xs) * 1.3, y0 = Math.min(...lows) / 1.15, y1 = Math.max(...points.map((p) => p.high)) * 1.15;
  const px = (v: number) => kLeft + ((Math.log(v) - Math.log(x0)) / (Math.log(x1) - Math.log(x0))) * (kW - kLeft - kRight);
  const py = (v: number) => kH - kBottom - ((Math.log(Math.max(v, y0)) - Math.log(y0)) / (Math.log(y1) - Math.log(y0))) * (kH - kBottom - kTop);
  return (
    <figure class="scatter">
      <svg viewBox={`0 0 ${kW} ${kH}`} role="group" aria-label={`${y} / ${x}`}>
        {ticks(x0, x1).map((v) => <g key={v}><line class="grid-line" x1={px(v)} x2={px(v)} y1={kTop} y2={kH - kBottom} /><text x={px(v)} y={kH - kBottom + 16} text-anchor="middle">{showX(v)}</text></g>)}
        {ticks(y0, y1).map((v) => <g key={v}><line class="grid-line" x1={kLeft} x2={kW - kRight} y1={py(v)} y2={py(v)} /><text x={kLeft - 6} y={py(v) + 4} text-anchor="end">{showY(v)}</text></g>)}
        <text class="axis" x={kW - kRight} y={kH - 6} text-anchor="end">{x}</text>
        <text class="axis" x={kLeft} y={kTop - 2}>{y}</text>
        {points.map((p) => (
          <g key={p.label} tabIndex={0} role="img" aria-label={p.text} class={p === at ? "point on" : "point"} onMouseEnter={() => setAt(p)} onFocus={() => setAt(p)}>
            <line x1={px(p.x)} x2={px(p.x)} y1={py(p.low)} y2={py(p.high)} />
            <circle cx={px(p.x)} cy={py(p.y)} r={p === at ? 7 : 5} />
            {points.length <= 24 && <text x={px(p.x) + (px(p.x) > kW * 0.8 ? -9 : 9)} y={py(p.y) + 4} text-anchor={px(p.x) > kW * 0.8 ? "end" : "start"}>{p.label}</text>}
          </g>
        ))}
      </svg>
      <figcaption aria-live="polite">{at ? at.text : t("Point at a machine for its figures. The lines show how uncertain a prediction is.")}</figcaption>
    </figure>
  );
}
