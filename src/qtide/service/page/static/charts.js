// Pictures: the timeline of a device, a circuit, and counts.

import { CAUSES, duration, h, number, s, share, shortClock } from "./dom.js";

const HIGH = 100;
const ORDER = Object.keys(CAUSES);

/** Colours stay with an account while the page is open; the eight largest get their own. */
const colours = new Map();

function colour(owner) {
  if (owner === "others") return "owner-others";
  if (!colours.has(owner)) colours.set(owner, colours.size < 8 ? `owner-${colours.size}` : "owner-others");
  return colours.get(owner);
}

function sums(columns, kind) {
  const found = new Map();
  for (const column of columns) {
    for (const [name, seconds] of Object.entries(column[kind])) found.set(name, (found.get(name) || 0) + seconds);
  }
  return [...found].sort((a, b) => b[1] - a[1]);
}

/** What a gap is called: what is not recorded need not have been idle. */
function gap(cause) {
  return cause === "unknown" ? CAUSES[cause] : `idle: ${CAUSES[cause]}`;
}

/** Columns of time: at the bottom who used the device, above it why it was idle. */
export function timeline(found) {
  const { columns, since, step } = found;
  const owners = sums(columns, "busy");
  for (const [owner] of owners) colour(owner);
  const paths = new Map();
  columns.forEach((column, x) => {
    let y = HIGH;
    const parts = [
      ...Object.entries(column.busy).sort().map(([name, seconds]) => [colour(name), seconds]),
      ...ORDER.filter((cause) => column.idle[cause]).map((cause) => [cause, column.idle[cause]]),
    ];
    for (const [kind, seconds] of parts) {
      const high = (HIGH * seconds) / step;
      if (high < 0.2) continue;
      y -= high;
      paths.set(kind, `${paths.get(kind) || ""}M${x} ${y.toFixed(1)}h1v${high.toFixed(1)}h-1z`);
    }
  });
  const all = columns.length * step;
  const idle = sums(columns, "idle");
  const words = [
    ...owners.map(([name, seconds]) => `${name} ${share(seconds / all)}`),
    ...idle.map(([cause, seconds]) => `${gap(cause)} ${share(seconds / all)}`),
  ];
  const picture = s("svg", { class: "timeline", viewBox: `0 0 ${columns.length} ${HIGH}`, preserveAspectRatio: "none", role: "img", "shape-rendering": "crispEdges", "aria-label": `The last ${duration(all)} of ${found.device}: ${words.join("; ")}` },
    [...paths].map(([kind, path]) => s("path", { class: `f-${kind}`, d: path })));
  const ticks = all > 600 ? [0, 0.25, 0.5, 0.75] : [0, 0.2, 0.4, 0.6, 0.8]; // whole minutes apart
  const axis = h("div", { class: "axis", "aria-hidden": "true" }, ticks.map((part) => h("span", {}, shortClock(since + part * all))), h("span", {}, "now"));
  const entry = (kind, name, seconds) => h("li", {}, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { class: `f-${kind}`, width: 10, height: 10 })), h("b", {}, name), h("span", { class: "muted" }, share(seconds / all)));
  const legend = h("ul", { class: "legend" },
    owners.map(([name, seconds]) => entry(colour(name), name, seconds)),
    idle.filter(([, seconds]) => seconds / all > 0.0005).map(([cause, seconds]) => entry(cause, gap(cause), seconds)));
  return [h("div", {}, picture, axis), legend];
}

const WIRE = 34;
const WIDE = 46;
const LEFT = 64;

/** A circuit: wires, and gates in columns. */
export function circuit(found) {
  const x = (column) => LEFT + WIDE * column + WIDE / 2;
  const y = (row) => WIRE * row + WIRE / 2;
  const width = LEFT + WIDE * found.columns + 8;
  const shapes = found.qubits.map((name, row) => [
    s("text", { class: "name", x: LEFT - 14, y: y(row) }, name),
    s("line", { class: "wire", x1: LEFT - 6, x2: width - 4, y1: y(row), y2: y(row) }),
  ]);
  for (const gate of found.gates) {
    const rows = gate.qubits;
    const at = x(gate.column);
    const tip = s("title", {}, gate.text ? `${gate.name}(${gate.text})` : gate.name);
    const tie = s("line", { class: "tie", x1: at, x2: at, y1: y(Math.min(...rows)), y2: y(Math.max(...rows)) });
    if (gate.name === "barrier") {
      shapes.push(s("line", { class: "wire", "stroke-dasharray": "3 3", x1: at, x2: at, y1: y(Math.min(...rows)) - 12, y2: y(Math.max(...rows)) + 12 }));
      continue;
    }
    const controlled = /^(cx|cz|cy|ch|ccx|crx|cry|crz|cp)$/.test(gate.name);
    const boxed = controlled && gate.name !== "cz" ? rows.slice(-1) : rows;
    const parts = [tip, rows.length > 1 ? tie : null];
    for (const row of rows) {
      if (controlled && (gate.name === "cz" || row !== rows[rows.length - 1])) {
        parts.push(s("circle", { class: "dot", cx: at, cy: y(row), r: 4.5 }));
      }
    }
    if (gate.name !== "cz") {
      const label = gate.name === "measure" ? "M" : (controlled ? gate.name.replace(/^c+/, "") : gate.name).slice(0, 5);
      for (const row of boxed) {
        parts.push(s("rect", { class: "gate", x: at - 19, y: y(row) - 12, width: 38, height: 24, rx: 4 }));
        parts.push(s("text", { x: at, y: y(row) }, label));
      }
    }
    shapes.push(s("g", {}, parts));
  }
  const high = WIRE * found.qubits.length;
  const label = `A circuit with ${number(found.all_qubits)} qubits and ${number(found.all_gates)} operations`;
  const picture = s("svg", { class: "circuit", role: "img", "aria-label": label, width, height: high, viewBox: `0 0 ${width} ${high}` }, shapes);
  const rest = found.hidden ? h("p", { class: "muted small" }, `${number(found.hidden)} of ${number(found.all_gates)} operations are not drawn.`) : null;
  return [h("div", { class: "wide", role: "region", "aria-label": "Circuit", tabindex: "0" }, picture), rest];
}

/** How often each outcome was measured. */
export function histogram(found) {
  const most = Math.max(...found.bars.map(([, times]) => times));
  const bars = found.bars.map(([outcome, times]) => [
    h("code", {}, outcome),
    s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { width: (100 * times) / most, height: 10 })),
    h("span", { class: "n" }, number(times)),
  ]);
  const more = found.outcomes > found.bars.length ? `, the ${found.bars.length} most frequent of ${number(found.outcomes)} outcomes` : "";
  return [h("p", { class: "muted small" }, `${number(found.shots)} shots${more}`), h("div", { class: "bars" }, bars)];
}

export function samples(found) {
  return h("div", { class: "wide", role: "region", "aria-label": "Best samples", tabindex: "0" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "energy"), h("th", { scope: "col" }, "times"), found.variables.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, found.rows.map((row) => h("tr", {}, h("th", { scope: "row" }, String(Number(row.energy.toPrecision(6)))), h("td", {}, number(row.times)), row.values.map((value) => h("td", {}, String(value))))))));
}
