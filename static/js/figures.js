// How charts look and write their figures, once for all of them: headgate.figures.
(() => {
  "use strict";
  // Colours come from the stylesheet's variables, so that both themes are right.
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const tint = (colour, share) => `color-mix(in srgb, ${colour} ${share}%, transparent)`;
  const unknown = (value) => value === null || value === undefined;

  const three = (value) => {
    const size = Math.abs(value);
    if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
    return value.toFixed(size >= 10 ? 1 : 2).replace(/\.?0+$/, "");
  };
  const number = (value) => {
    if (unknown(value)) return "–";
    const size = Math.abs(value);
    for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= limit) return `${three(value / limit)}${unit}`;
    }
    return three(value);
  };
  const rate = (value) => (unknown(value) ? "–" : `${number(value)}/s`);
  const duration = (ms) => {
    if (unknown(ms)) return "–";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    const s = ms / 1000;
    if (s < 60) return `${three(s)} s`;
    if (s < 3600) return `${three(s / 60)} min`;
    return s < 172800 ? `${three(s / 3600)} h` : `${three(s / 86400)} d`;
  };

  const axis = (extra) => ({
    stroke: css("--ink-3"),
    font: "11px Inter Variable, system-ui, sans-serif",
    grid: { stroke: css("--line-soft"), width: 1 },
    ticks: { show: false },
    ...extra,
  });

  window.headgate = Object.assign(window.headgate || {}, {
    figures: { css, tint, number, rate, duration, axis },
  });
})();
