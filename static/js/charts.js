// Charts of a query or a run: uPlot over the series endpoint, appended live.
//
//   <div data-charts="/…/series/?range=1h" data-live-event="batches-42">
//     <div class="chart" data-chart="rates|phases|watermark|state" data-limit="5000"></div>
(() => {
  "use strict";
  const root = document.querySelector("[data-charts]");
  if (!root) return;

  const PHASES = ["addBatch", "latestOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets"];
  const WORDS = {
    addBatch: "Batch",
    latestOffset: "Offsets",
    getBatch: "Get",
    queryPlanning: "Plan",
    walCommit: "Log",
    commitOffsets: "Commit",
  };
  const { css, tint, number, rate, duration, axis } = headgate.figures;

  const clock = (at) => {
    const { day, time } = headgate.local(at * 1000);
    if (span > 172800) return `${day.slice(8)}.${day.slice(5, 7)}. ${time.slice(0, 5)}`;
    return span < 600 ? time : time.slice(0, 5);
  };

  let span = 900; // seconds that the charts show
  let fixed = null; // a run's charts keep their range
  const data = { at: [], columns: {}, batches: [], marks: [], outages: [] };
  const column = (name) => data.columns[name] || new Array(data.at.length).fill(null);
  const some = (values) => values.some((value) => value !== null && value !== undefined);

  // Steps of time that read well: 1, 2, 5, 10, 15, 30 of a unit.
  const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...STEPS_S.map((s) => s * 1000)];

  // Each kind: its series, how values are written, and what to say when there is nothing.
  const KINDS = {
    rates: {
      write: rate,
      none: "No rates yet",
      series: () => [
        { label: "Input", values: column("input_rows_per_second"), colour: css("--chart-1") },
        { label: "Processed", values: column("processed_rows_per_second"), colour: css("--chart-2") },
      ],
    },
    phases: {
      write: duration,
      steps: STEPS_MS,
      none: "No batches yet",
      stacked: true,
      series: () => {
        const known = PHASES.map((phase, index) => ({
          label: WORDS[phase],
          values: column(`phase_${phase}`),
          colour: css(`--chart-${index + 1}`),
        })).filter((one) => some(one.values));
        // Of an epoch of continuous processing only the whole is known.
        return known.length
          ? known
          : [{ label: "Epoch", values: column("batch_duration_ms"), colour: css("--chart-1") }];
      },
    },
    watermark: {
      steps: STEPS_S,
      write: (v) => duration(v === null || v === undefined ? v : v * 1000),
      none: "This query has no watermark",
      series: () => [{ label: "Behind", values: column("watermark_delay_s"), colour: css("--chart-1") }],
    },
    state: {
      write: number,
      none: "This query keeps no state",
      series: () => [{ label: "Rows", values: column("state_rows"), colour: css("--chart-1") }],
    },
  };

  const stack = (series) => {
    const sums = new Array(data.at.length).fill(0);
    return series.map((one) => one.values.map((value, i) => {
      if (value === null || value === undefined) return data.batches[i] === null ? null : sums[i];
      return (sums[i] += value);
    }));
  };

  // What happened: a line at its moment, in the colour of its kind; outages are shaded.
  // The order is that of what one asks for first, where several lie on one another.
  const MARKS = { failure: "--bad-bar", death: "--bad-bar", incident: "--warn-bar", revision: "--accent", operation: "--accent", run: "--ink-3" };
  const RANK = Object.keys(MARKS);
  const NEAR = 6; // pixels
  const drawOutages = (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = tint(css("--bad-bar"), 12);
    for (const one of data.outages) {
      const from = Math.max(bbox.left, plot.valToPos(one.since, "x", true));
      const to = Math.min(bbox.left + bbox.width, plot.valToPos(one.until ?? headgate.now() / 1000, "x", true));
      if (to > from) ctx.fillRect(from, bbox.top, to - from, bbox.height);
    }
    ctx.restore();
  };
  const drawMarks = (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    for (const mark of data.marks) {
      const x = Math.round(plot.valToPos(mark.at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = css(MARKS[mark.kind] || "--ink-3");
      ctx.setLineDash(mark.kind === "run" ? [2, 3] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(x, bbox.top, 3 * devicePixelRatio, 0, Math.PI * 2);
      ctx.fill();
    }
    ctx.restore();
  };
  const near = (plot, left) => {
    if (left === null || left === undefined || left < 0) return [];
    const found = data.marks.filter((mark) => Math.abs(plot.valToPos(mark.at, "x") - left) <= NEAR);
    return found.sort((one, other) => RANK.indexOf(one.kind) - RANK.indexOf(other.kind));
  };
  const outageAt = (plot, left) => {
    const at = plot.posToVal(left, "x");
    return data.outages.find((one) => one.since <= at && at <= (one.until ?? Infinity));
  };

  class Chart {
    constructor(element) {
      this.element = element;
      this.kind = KINDS[element.dataset.chart];
      this.legend = root.querySelector(`[data-legend="${element.dataset.chart}"]`);
      this.limit = Number(element.dataset.limit) || null;
      new ResizeObserver(() => this.plot?.setSize(this.size())).observe(element);
    }
    size() {
      return { width: this.element.clientWidth, height: this.element.clientHeight };
    }
    draw() {
      const series = this.kind.series();
      if (!some(series.flatMap((one) => one.values))) {
        this.plot?.destroy();
        this.plot = null;
        this.element.textContent = data.at.length ? this.kind.none : "No batches in this range";
        this.element.classList.add("chart-none");
        if (this.legend) this.legend.textContent = "";
        return;
      }
      const drawn = this.kind.stacked ? stack(series) : series.map((one) => one.values);
      const table = [data.at, ...drawn];
      const shape = series.map((one) => one.label).join();
      if (this.plot && this.shape === shape) {
        this.series = series;
        this.plot.setData(table, !this.zoomed);
        if (!this.zoomed) this.plot.setScale("x", range());
        this.tell(null);
        return;
      }
      this.plot?.destroy();
      this.element.textContent = "";
      this.element.classList.remove("chart-none");
      this.shape = shape;
      this.series = series;
      this.plot = new uPlot(this.options(series), table, this.element);
      this.tell(null);
    }
    options(series) {
      const stacked = this.kind.stacked;
      const limit = this.limit;
      return {
        ...this.size(),
        padding: [10, 12, 0, 0],
        legend: { show: false },
        cursor: { points: { size: 6 }, drag: { x: true, y: false }, sync: { key: "charts", setSeries: false } },
        scales: {
          x: { time: true, range: (plot, min, max) => (this.zoomed ? [min, max] : [range().min, range().max]) },
          y: { range: (plot, min, max) => [Math.min(0, min), Math.max(max, limit || 0, 1e-9) * 1.08] },
        },
        tzDate: (at) => uPlot.tzDate(new Date(at * 1000), headgate.zone === "UTC" ? "Etc/UTC" : headgate.zone),
        axes: [axis({ space: 70, size: 28, values: (plot, splits) => splits.map(clock) }), axis({ size: 58, ...(this.kind.steps ? { incrs: this.kind.steps } : {}), values: (plot, splits) => splits.map((v) => this.kind.write(v)) })],
        series: [
          {},
          ...series.map((one) => ({
            label: one.label,
            stroke: one.colour,
            width: stacked ? 1 : 1.6,
            fill: stacked ? undefined : tint(one.colour, 9),
            spanGaps: false,
            points: { show: data.at.length < 3, size: 5 },
          })),
        ],
        bands: stacked
          ? series.map((one, i) => ({ series: [i + 1, i], fill: tint(one.colour, 55) })).slice(1)
          : undefined,
        hooks: {
          init: [(plot) => stacked && (plot.series[1].fill = () => tint(series[0].colour, 55))],
          setCursor: [(plot) => this.tell(plot.cursor.idx)],
          setSelect: [(plot) => {
            this.zoomed = plot.select.width > 0;
            if (this.zoomed) share(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
          }],
          drawAxes: [drawOutages],
          draw: [(plot) => limit && this.rule(plot, limit), drawMarks],
          ready: [(plot) => {
            plot.over.addEventListener("dblclick", () => {
              this.zoomed = false;
              share(null);
              plot.setScale("x", range());
            });
            plot.over.addEventListener("click", () => {
              const [mark] = near(plot, plot.cursor.left);
              if (mark && !this.zoomed) window.location.assign(mark.href);
            });
          }],
        },
      };
    }
    rule(plot, limit) {
      const y = Math.round(plot.valToPos(limit, "y", true));
      const { ctx, bbox } = plot;
      if (y < bbox.top) return;
      ctx.save();
      ctx.strokeStyle = css("--warn-bar");
      ctx.setLineDash([4, 4]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.restore();
    }
    tell(index) {
      if (!this.legend || !this.series) return;
      const at = index === null || index === undefined ? data.at.length - 1 : index;
      const parts = this.series.map((one) => {
        const item = document.createElement("span");
        const key = document.createElement("i");
        key.style.background = one.colour;
        const value = document.createElement("b");
        value.textContent = this.kind.write(one.values[at]);
        item.append(key, one.label, " ", value);
        return item;
      });
      if (index !== null && index !== undefined && data.batches[at] !== null) {
        const batch = document.createElement("span");
        batch.className = "muted";
        batch.textContent = `batch ${data.batches[at]} · ${headgate.local(data.at[at] * 1000).time} ${headgate.zone}`;
        parts.unshift(batch);
      }
      const left = this.plot?.cursor.left;
      const happened = index === null || index === undefined || !this.plot ? [] : near(this.plot, left).map((mark) => mark.text);
      const outage = this.plot && left >= 0 && index !== null && outageAt(this.plot, left);
      if (outage) happened.push(outage.text);
      if (happened.length) {
        const said = document.createElement("span");
        said.className = "chart-mark";
        said.textContent = happened.join(" · ");
        parts.unshift(said);
      }
      this.plot?.over.classList.toggle("chart-on-mark", happened.length > (outage ? 1 : 0));
      this.legend.replaceChildren(...parts);
    }
  }

  // What one has zoomed to can be given to others as an address.
  const shared = document.getElementById("share-range");
  const share = (from, to) => {
    if (!shared) return;
    shared.hidden = from === null;
    if (from === null) return;
    const iso = (at) => new Date(at * 1000).toISOString();
    shared.href = `?since=${encodeURIComponent(iso(from))}&until=${encodeURIComponent(iso(to))}`;
  };

  const range = () => {
    if (fixed && root.dataset.liveEvent && !document.querySelector("[data-ended]")) {
      fixed.max = Math.max(fixed.max, headgate.now() / 1000); // the run goes on
    }
    if (fixed) return fixed;
    const until = headgate.now() / 1000;
    return { min: until - span, max: until };
  };

  const charts = [...root.querySelectorAll("[data-chart]")].map((element) => new Chart(element));
  const drawAll = () => charts.forEach((chart) => chart.draw());

  const merge = (more) => {
    const last = data.at.length ? data.at[data.at.length - 1] : -Infinity;
    const names = new Set([...Object.keys(data.columns), ...Object.keys(more.columns)]);
    for (let i = 0; i < more.at.length; i += 1) {
      if (more.at[i] <= last) continue;
      for (const name of names) {
        data.columns[name] ||= new Array(data.at.length).fill(null);
        data.columns[name].push(more.columns[name] ? more.columns[name][i] : null);
      }
      data.at.push(more.at[i]);
      data.batches.push(more.batches[i]);
    }
    const oldest = headgate.now() / 1000 - span * 1.1;
    let drop = 0;
    if (!fixed) while (data.at[drop] < oldest) drop += 1;
    if (drop) {
      data.at.splice(0, drop);
      data.batches.splice(0, drop);
      Object.values(data.columns).forEach((values) => values.splice(0, drop));
    }
  };

  const load = async (address) => {
    const response = await fetch(address, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(String(response.status));
    return response.json();
  };
  const begin = async () => {
    try {
      const first = await load(root.dataset.charts);
      if (first.since) span = first.until - first.since;
      if (root.hasAttribute("data-fixed")) fixed = { min: first.since, max: first.until };
      Object.assign(data, { at: first.at, columns: first.columns, batches: first.batches, marks: first.marks || [], outages: first.outages || [] });
      drawAll();
    } catch {
      charts.forEach((chart) => {
        chart.element.textContent = "The data could not be loaded. Reload the page to try again.";
        chart.element.classList.add("chart-none");
      });
    }
  };

  const happen = (more) => {
    const known = new Set(data.marks.map((mark) => mark.kind + mark.at));
    data.marks.push(...(more.marks || []).filter((mark) => !known.has(mark.kind + mark.at)));
    if (more.outages) {
      const since = more.since ?? Infinity;
      data.outages = [...data.outages.filter((one) => one.until !== null && one.until < since), ...more.outages];
    }
  };
  const catchUp = async () => {
    if (!data.at.length) return begin();
    const since = new Date(data.at[data.at.length - 1] * 1000).toISOString();
    const more = await load(`${root.dataset.charts.split("?")[0]}?since=${encodeURIComponent(since)}`);
    merge(more);
    happen(more);
    drawAll();
    return undefined;
  };

  begin().then(() => {
    if (!root.dataset.liveEvent || !headgate.onLive) return;
    headgate.onLive(root.dataset.liveEvent, (text) => {
      const more = JSON.parse(text);
      const last = data.at[data.at.length - 1];
      if (data.at.length && more.at.length && more.at[0] > last + 1) catchUp().catch(() => {});
      else {
        merge(more);
        drawAll();
      }
    });
    // Marks do not come with batches: while nothing commits, they are what happens.
    setInterval(() => {
      if (document.hidden || fixed) return;
      load(`${root.dataset.charts.split("?")[0]}?range=15m`).then((more) => {
        happen(more);
        drawAll();
      }, () => {});
    }, 30000);
    setInterval(() => {
      if (!document.hidden && document.getElementById("live")?.dataset.state === "live") {
        charts.forEach((chart) => chart.plot && !chart.zoomed && chart.plot.setScale("x", range()));
      }
    }, 1000);
  });
  const redraw = () => {
    charts.forEach((chart) => {
      chart.plot?.destroy();
      chart.plot = null;
    });
    drawAll();
  };
  document.addEventListener("headgate:theme", redraw);
})();
