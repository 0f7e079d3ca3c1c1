// The curves of the trigger's advice: expected latency and greatest throughput by interval.
//
//   <div data-advice><div class="chart" data-advice-chart="latency|throughput"></div></div>
//   <script id="advice-curve" type="application/json">{interval, latency, low, high, …}</script>
(() => {
  "use strict";
  const root = document.querySelector("[data-advice]");
  const source = document.getElementById("advice-curve");
  if (!root || !source) return;
  const curve = JSON.parse(source.textContent);

  const { css, tint, rate, duration, axis } = headgate.figures;
  const TICKS_MS = [50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 9e5, 3.6e6];

  // Each kind: its columns and how values are written.
  const KINDS = {
    latency: {
      write: duration,
      colour: () => css("--chart-1"),
      table: () => [curve.interval, curve.low, curve.high, curve.latency],
    },
    throughput: {
      write: rate,
      colour: () => css("--chart-2"),
      table: () => [curve.interval, curve.throughput],
    },
  };

  const here = (plot) => {
    if (!curve.now) return;
    const x = Math.round(plot.valToPos(curve.now, "x", true));
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = css("--warn-bar");
    ctx.fillStyle = css("--ink-2");
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.font = `${11 * devicePixelRatio}px Inter Variable, system-ui, sans-serif`;
    const left = x > bbox.left + bbox.width * 0.8;
    ctx.textAlign = left ? "right" : "left";
    ctx.fillText("now", x + (left ? -5 : 5) * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
    ctx.restore();
  };

  const draw = (element) => {
    const kind = KINDS[element.dataset.adviceChart];
    const table = kind.table();
    const colour = kind.colour();
    const band = table.length > 2;
    const known = table.slice(1).flat().filter((value) => value !== null);
    if (!known.length) {
      element.textContent = "Not limited by the measured costs";
      element.classList.add("chart-none");
      return null;
    }
    element.textContent = "";
    const edge = { stroke: tint(colour, 25), width: 1, points: { show: false } };
    const line = { stroke: colour, width: 2, points: { show: false } };
    return new uPlot(
      {
        width: element.clientWidth,
        height: element.clientHeight,
        padding: [10, 12, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: { time: false, distr: 3 },
          y: { range: (plot, min, max) => [0, Math.max(max, 1e-9) * 1.08] },
        },
        axes: [
          axis({
            size: 28,
            splits: (plot) => TICKS_MS.filter((tick) => tick >= plot.scales.x.min && tick <= plot.scales.x.max),
            filter: (plot, splits) => splits,
            values: (plot, splits) => splits.map(duration),
          }),
          axis({ size: 58, values: (plot, splits) => splits.map(kind.write) }),
        ],
        series: band ? [{}, edge, edge, line] : [{}, { ...line, fill: tint(colour, 9) }],
        bands: band ? [{ series: [2, 1], fill: tint(colour, 14) }] : undefined,
        hooks: { draw: [here], setCursor: [(plot) => tell(plot, element, kind, table)] },
      },
      table,
      element,
    );
  };

  const tell = (plot, element, kind, table) => {
    const at = plot.cursor.idx;
    const last = table[table.length - 1];
    element.title =
      at === null || at === undefined ? "" : `${duration(table[0][at])}: ${kind.write(last[at])}`;
  };

  const elements = [...root.querySelectorAll("[data-advice-chart]")];
  let plots = [];
  const drawAll = () => {
    plots.forEach((plot) => plot?.destroy());
    plots = elements.map(draw);
  };
  drawAll();
  new ResizeObserver(() => {
    plots.forEach((plot, i) => plot?.setSize({ width: elements[i].clientWidth, height: elements[i].clientHeight }));
  }).observe(root);
  document.addEventListener("headgate:theme", drawAll);
})();
