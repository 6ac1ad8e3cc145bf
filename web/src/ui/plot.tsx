// A live series over time, drawn by uPlot. Colours come from the page's own variables, so both themes work.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../theme";

export interface Line { label: string; data: () => (number | null)[]; color: string }

const css = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function LivePlot({ label, time, lines, unit, window_s = 120, height = 110, hz = 10, points = false }: { label: string; time: () => number[]; lines: Line[]; unit: (v: number) => string; window_s?: number; height?: number; hz?: number; points?: boolean }) {
  const ref = useRef<HTMLDivElement>(null);
  const dark = theme.value;
  useEffect(() => {
    const box = ref.current!;
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const plot = new uPlot(
      {
        width: box.clientWidth || 300, height, legend: { show: false }, cursor: { show: false }, padding: [8, 6, 0, 0],
        scales: { x: { time: true, auto: false }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.15 : 1] } },
        axes: [
          { ...axis, size: 22, space: 80, values: (_u, splits) => splits.map((s) => new Date(s * 1000).toLocaleTimeString([], { hour12: false })) },
          { ...axis, size: 46, space: 28, values: (_u, splits) => splits.map(unit) },
        ],
        series: [{}, ...lines.map((l) => ({ label: l.label, stroke: css(l.color), width: 1.75, points: { show: points, size: 6, fill: css(l.color) }, spanGaps: points }))],
      },
      [[], ...lines.map(() => [])] as uPlot.AlignedData, box);
    let frame = 0;
    let drawn = -1; // time of the newest point on the canvas
    let visible = true;
    const draw = () => {
      if (!visible || document.hidden) return;
      const x = time();
      const last = x[x.length - 1] ?? 0;
      const moving = x.length > 0 && Date.now() / 1000 - last < (points ? 30 : 3);
      if (last === drawn && !moving) return;
      const now = x.length === 0 || moving ? Date.now() / 1000 : last;
      plot.batch(() => {
        if (last !== drawn) plot.setData([x, ...lines.map((l) => l.data())] as uPlot.AlignedData, false);
        plot.setScale("x", { min: now - window_s, max: now });
      });
      drawn = last;
    };
    const timer = setInterval(() => (cancelAnimationFrame(frame), (frame = requestAnimationFrame(draw))), 1000 / hz);
    const resize = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height }));
    resize.observe(box);
    const seen = new IntersectionObserver((e) => (visible = e[0].isIntersecting));
    seen.observe(box);
    return () => {
      clearInterval(timer);
      cancelAnimationFrame(frame);
      resize.disconnect();
      seen.disconnect();
      plot.destroy();
    };
  }, [dark, window_s, height, hz]);
  return <div class="plot" ref={ref} role="img" aria-label={label} style={{ height: `${height}px` }} />;
}
