// Elements and words. Every text of a user becomes a text node, never markup.

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(made, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(9).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/**
 * Puts other children into an element. Those that are the same stay, so that nobody who is about to press one
 * loses it; if the one with the focus has changed, its successor gets the focus.
 */
export function renew(parent, children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const name = (element) => element.getAttribute("href") || element.textContent;
  const old = [...parent.children];
  const next = children.filter(Boolean).map((each) => old.find((one) => one === each || one.isEqualNode(each)) || each);
  for (const each of old) if (!next.includes(each)) each.remove();
  let at = parent.firstElementChild;
  for (const each of next) {
    if (each === at) at = at.nextElementSibling;
    else parent.insertBefore(each, at);
  }
  if (!focused || focused === document.activeElement) return;
  const able = [...parent.querySelectorAll("a, button")];
  const after = able.find((each) => name(each) === name(focused)) || able[0];
  if (after) after.focus({ preventScroll: true });
}

/** Sets the text of an element if it differs, so that nothing flickers. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function facts(pairs, kind = "facts") {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  const pair = ([name, value]) => [h("dt", {}, name), h("dd", {}, value)];
  return h("dl", { class: kind }, shown.map((each) => (kind === "figures" ? h("div", {}, pair(each)) : pair(each))));
}

/** A table whose rows become blocks on a narrow screen; the first cell of each row is its head. */
export function table(label, heads, rows) {
  return h("div", { class: "wide", role: "region", "aria-label": label, tabindex: "0" }, h("table", { class: "stacks" },
    h("thead", {}, h("tr", {}, heads.map((each) => h("th", { scope: "col" }, each)))),
    h("tbody", {}, rows.map(({ mine, cells: [first, ...rest] }) => h("tr", { "data-mine": mine }, h("th", { scope: "row" }, first),
      rest.map((each, at) => h("td", { "data-head": heads[at + 1] }, each)))))));
}

export function badge(state) {
  return h("span", { class: "badge", "data-state": state }, state);
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const SHORT = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const DATED = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });

export function clock(at, now = Date.now() / 1000) {
  if (at === null || at === undefined) return "–";
  const day = (when) => new Date(when * 1000).toDateString();
  return (day(at) === day(now) ? CLOCK : DATED).format(at * 1000);
}

export function shortClock(at) {
  return SHORT.format(at * 1000);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (large, name, small, other) => (small ? `${large} ${name} ${small} ${other}` : `${large} ${name}`);
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return two(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

/** A duration in its largest unit alone. */
export function age(seconds) {
  return duration(seconds).split(" ").slice(0, 2).join(" ");
}

export function share(part) {
  if (part === null || part === undefined) return "–";
  const percent = 100 * part;
  if (percent > 0 && percent < 0.1) return "< 0.1 %";
  return `${percent >= 10 || percent === 0 ? (percent > 99 && percent < 100 ? Math.min(99.99, percent).toFixed(2) : Math.round(percent)) : percent.toFixed(1)} %`;
}

export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export const CAUSES = {
  nobody: "nobody wants it",
  clients: "clients compute",
  handover: "between two tasks",
  calibration: "calibrating",
  maintenance: "drained",
  down: "down or starting",
  unknown: "not recorded",
};

const STATES = { idle: "idle", busy: "busy", starting: "starting", error: "error", maintenance: "maintenance", calibration: "calibration" };

export function deviceState(device) {
  return device.closed && device.state === "busy" ? "draining" : STATES[device.state] || device.state;
}

/** Why a task waits, in a few words. */
export function why(task) {
  if (task.state === "running") return task.started ? "on the device" : "on its way to the device";
  if (task.state !== "queued") return task.error || task.state;
  const ahead = task.position;
  const first = { queue: ahead === 0 ? "next in line" : ahead === 1 ? "1 task goes first" : `${number(ahead)} tasks go first` };
  const words = { quota: "over a quota", calibration: "the device calibrates", maintenance: "the device is drained", down: "the device is down", starting: "the device starts" };
  return words[task.reason] || (ahead === null || ahead === undefined ? "waits" : first.queue);
}

/** What would let a waiting task start, in a sentence. */
export function change(task, device) {
  const policy = device ? device.policy : "the device's";
  return {
    queue: `The policy “${policy}” decides the order. The task moves up as others end or are cancelled; a promise to another task can move it back.`,
    quota: "It starts when the quota has room: when another task of the same user or account ends, or when the next day begins (UTC).",
    calibration: device && device.calibration ? `It can start after the calibration, which takes ${duration(device.calibration.lasts)}.` : "It can start after the calibration.",
    maintenance: "It can start when an operator resumes the device.",
    down: "It can start when the device is back; the service keeps trying to start it.",
    starting: "It can start as soon as the device is ready.",
  }[task.reason] || "It starts as soon as the device is free.";
}

export function title(task) {
  return task.name || `task ${task.id.slice(0, 8)}`;
}

/** Asks before something happens; resolves to the form's values, or null. */
export function ask(words, { fields = [], action = "OK", bad = false } = {}) {
  return new Promise((resolve) => {
    const inputs = fields.map(([name, label, kind, usual]) => [name, h("input", { type: kind || "text", id: `ask-${name}`, value: usual || "", maxlength: 200 }), label]);
    let value = null;
    const form = h("form", { method: "dialog", onsubmit: () => { value = Object.fromEntries(inputs.map(([name, input]) => [name, input.value])); } },
    inputs.map(([, input, label]) => h("label", {}, h("span", {}, label), input)),
    h("p", { class: "row" }, h("button", { class: bad ? "bad" : "main" }, action), h("button", { type: "button", onclick: () => box.close() }, "Back")));
    const box = h("dialog", { "aria-label": words }, h("p", {}, words), form);
    box.addEventListener("close", () => { box.remove(); resolve(value); }); // by then, the focus is back where it was
    document.body.append(box);
    box.showModal();
  });
}
