// The first view: the devices, and one of them in detail with its queue.

import { timeline } from "./charts.js";
import { age, ask, badge, clock, deviceState, duration, facts, h, number, renew, say, share, shortClock, title, why } from "./dom.js";
import { call } from "./live.js";

const PART = 100; // rows of the queue that are fetched at once
const SPANS = [["5min", "5 min"], ["hour", "1 hour"], ["day", "1 day"]];
let span = "5min";

export class DevicesView {
  constructor(root, app, name) {
    this.app = app;
    this.cards = h("ul", { class: "devices" });
    this.links = new Map();
    this.detail = h("section", { class: "detail", "aria-labelledby": "device-name", tabindex: "-1" });
    root.append(h("h1", { class: "hidden" }, "Devices"), this.cards, this.detail);
    this.name = name;
    this.shown = null;
    this.timer = setInterval(() => this.tick(), 1000);
    this.update({ whole: true, tasks: [], more: true });
  }

  end() {
    clearInterval(this.timer);
    if (this.shown) this.shown.end();
  }

  /** The device was chosen: go on from it, and on a small screen show it below the cards. */
  enter() {
    this.detail.focus({ preventScroll: true });
    if (this.detail.getBoundingClientRect().top > innerHeight / 2) this.detail.scrollIntoView();
  }

  update(change) {
    const devices = [...this.app.live.devices.values()];
    if (!devices.length) return;
    if (!this.app.live.devices.has(this.name)) {
      const busy = devices.find((each) => each.state === "busy" || each.waiting);
      this.name = this.asked = (busy || devices[0]).name;
    }
    this.draw(devices);
    if (!this.shown || this.shown.name !== this.name) {
      if (this.shown) this.shown.end();
      this.shown = new DeviceDetail(this.detail, this.app, this.name);
    }
    this.shown.update(change);
  }

  draw(devices) {
    const running = new Map();
    for (const task of this.app.live.tasks.values()) if (task.state === "running") running.set(task.device, task);
    const now = this.app.live.now();
    const cards = devices.map((device) => {
      const task = running.get(device.name);
      const plan = device.calibration;
      const card = this.links.get(device.name) || h("a", { class: "card device", href: `#/device/${device.name}`, "data-device": device.name, onclick: () => location.hash === card.hash && this.enter() });
      this.links.set(device.name, card); // it stays, so that it can be pressed while the device changes
      if (device.name === this.name) card.setAttribute("aria-current", "true");
      else card.removeAttribute("aria-current");
      renew(card, [
        h("div", { class: "row" }, h("h2", {}, device.name), badge(deviceState(device))),
        facts([
          ["since", clock(device.since, now)],
          ["why", device.reason],
          ["waiting", number(device.waiting)],
          ["a new task waits", device.expected_wait === null ? "unknown" : duration(device.expected_wait)],
          ["runs", task ? `${title(task)}${this.app.me.operator ? ` (${task.user})` : ""}` : device.running ? "a task of another user" : null],
          ["calibrated", plan ? `${age(now - plan.last)} ago, next ${shortClock(plan.next)}` : null],
        ], "")]);
      return card.parentNode || h("li", {}, card);
    });
    renew(this.cards, cards);
  }

  tick() {
    if (this.shown) this.shown.tick();
  }
}

class DeviceDetail {
  constructor(root, app, name) {
    this.app = app;
    this.name = name;
    this.head = h("div", { class: "row" });
    this.picture = h("div", { class: "card" }, h("p", { class: "muted" }, "The timeline is being read."));
    this.figures = h("div", { class: "card" });
    this.recent = h("div", { class: "list plainlist", role: "table", "aria-label": "Recent tasks" });
    this.queue = new QueueList(app, name);
    const choice = h("div", { class: "choice", role: "group", "aria-label": "Time shown" }, SPANS.map(([key, words]) => h("button", {
      "aria-pressed": String(span === key), onclick: (event) => {
        span = key;
        for (const each of choice.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
        this.fetchFigures();
      } }, words)));
    this.choice = choice;
    this.planned = h("div", { class: "notice" });
    this.planned.hidden = true;
    root.replaceChildren(this.head, this.planned, this.picture, this.figures, this.queue.root, h("div", { class: "card" }, h("h2", {}, "Recent tasks"), this.recent));
    for (const each of [...root.children].slice(1)) each.style.marginTop = "1rem";
    this.since = 0;
    this.fetchRecent();
    this.fetchFigures();
  }

  end() {
    this.ended = true;
    this.queue.end();
  }

  update(change) {
    const device = this.app.live.devices.get(this.name);
    if (!device) return;
    const key = JSON.stringify([device.state, device.reason, device.drained, device.maintenance]);
    if (this.key !== key) {
      this.key = key;
      this.drawHead(device);
      this.drawPlans(device);
    }
    const here = change.tasks.filter((task) => task.device === this.name);
    if (change.whole) this.fetchRecent();
    else if (here.length) this.drawRecent();
    if (change.whole || change.more || here.length || (change.devices || []).some((each) => each.name === this.name)) this.queue.stale();
    if (this.due === undefined && here.length) this.due = Date.now() + 1000;
  }

  tick() {
    this.since += 1;
    const every = { "5min": 2, hour: 10, day: 60 }[span];
    if (!document.hidden && this.since >= every) this.fetchFigures();
  }

  drawHead(device) {
    const words = device.reason ? h("p", { class: "muted" }, device.reason) : null;
    const manage = this.app.me.operator ? h("div", { class: "row end" }, device.drained
      ? h("button", { class: "main", onclick: () => this.post("resume") }, "Resume")
      : h("button", { onclick: () => this.drain() }, "Drain…"), h("button", { onclick: () => this.plan() }, "Plan maintenance…")) : null;
    renew(this.head, [h("h2", { id: "device-name" }, this.name), badge(deviceState(device)), words, manage]);
  }

  drawPlans(device) {
    const now = this.app.live.now();
    this.planned.hidden = !device.maintenance.length;
    renew(this.planned, device.maintenance.map((each) => h("p", { class: "row", "data-number": each.number },
      `Maintenance ${clock(each.start, now)} to ${clock(each.end, now)}${each.reason ? `: ${each.reason}` : ""}`,
      this.app.me.operator ? h("button", { class: "plain", onclick: () => this.unplan(each) }, "Cancel it") : null)));
  }

  async plan() {
    const soon = new Date(Date.now() + 3600e3 - new Date().getTimezoneOffset() * 60e3).toISOString().slice(0, 16);
    const found = await ask(`When does ${this.name} start no tasks?`, { fields: [["start", "Begin", "datetime-local", soon], ["hours", "Hours", "number", "2"], ["reason", "Reason, shown to users"]], action: "Plan" });
    if (!found) return;
    const start = new Date(found.start).getTime() / 1000;
    const form = { device: this.name, start, end: start + 3600 * Number(found.hours), reason: found.reason || null };
    await this.app.attempt(() => call("v1/maintenance", { method: "POST", form }));
  }

  async unplan(window) {
    await this.app.attempt(() => call(`v1/maintenance/${window.number}`, { method: "DELETE" }));
  }

  async drain() {
    const found = await ask(`Start no more tasks on ${this.name}? Running ones end, others wait.`, { fields: [["reason", "Reason, shown to users"]], action: "Drain" });
    if (found) await this.post("drain", { reason: found.reason || null });
  }

  async post(what, form) {
    await this.app.attempt(() => call(`v1/devices/${this.name}/${what}`, { method: "POST", form }));
  }

  async fetchFigures() {
    this.since = 0;
    const wanted = span;
    const [line, sums, vitals] = await this.app.attempt(() => Promise.all([
      call(`v1/devices/${this.name}/timeline?span=${wanted}`), call(`v1/devices/${this.name}/summary?span=${wanted}`), call("v1/vitals"),
    ]), []);
    if (!line || this.ended || wanted !== span) return;
    const focus = this.choice.contains(document.activeElement) ? document.activeElement : null;
    this.picture.replaceChildren(h("div", { class: "row" }, h("h3", {}, "Who used it, and why it was idle"), h("div", { class: "end" }, this.choice)), ...timeline(line));
    if (focus) focus.focus();
    this.drawFigures(sums, vitals.slots);
  }

  drawFigures(sums, slots) {
    const all = Object.values(sums.seconds).reduce((one, other) => one + other, 0);
    const given = sums.tasks.promised;
    const small = (words) => h("small", {}, words);
    this.figures.replaceChildren(facts([
      ["Occupancy", [all ? share(sums.seconds.busy / all) : "–", small(`${duration(sums.seconds.busy)} of ${duration(all)}`)]],
      ["Idle while wanted", [all ? share(sums.wanted / all) : "–", small(duration(sums.wanted))]],
      ["Wait, median", [duration(sums.wait.p50), small("half of the tasks")]],
      ["Wait, 95 %", [duration(sums.wait.p95), small(sums.wait.p50 === null ? "no task has begun" : `longest ${duration(sums.wait.longest)}`)]],
      ["Promises kept", [given ? `${number(sums.tasks.kept)} of ${number(given)}` : "none given", small("starts within the wait allowed")]],
      ["Tasks ended", [number(sums.tasks.done + sums.tasks.failed + sums.tasks.cancelled), small(`${number(sums.tasks.failed)} failed`)]],
      ["Virtual QPUs", [slots.granted === null ? number(slots.all) : `${number(slots.granted)} of ${number(slots.all)}`, small(slots.granted === null ? "not admitted by Slurm" : `granted by Slurm; ${number(slots.in_use)} in use`)]],
    ], "figures"));
  }

  async fetchRecent() {
    const found = await this.app.attempt(() => call(`v1/devices/${this.name}/recent${this.app.me.operator ? "?everybody=true" : ""}`), null);
    if (!found || this.ended) return;
    for (const task of found.tasks.reverse()) {
      const known = this.app.live.tasks.get(task.id);
      if (!known || rank(task) >= rank(known)) this.app.live.keep(task);
    }
    this.drawRecent();
  }

  drawRecent() {
    const tasks = [...this.app.live.tasks.values()].filter((task) => task.device === this.name && task.state !== "queued");
    tasks.sort((a, b) => (b.ended || b.started || b.submitted) - (a.ended || a.started || a.submitted));
    const operator = this.app.me.operator;
    this.recent.classList.toggle("mine", !operator);
    if (!tasks.length) {
      renew(this.recent, [h("p", { class: "empty" }, "No task has begun yet.")]);
      return;
    }
    const head = h("div", { class: "line head", role: "row" }, ["Task", operator && "Whose", "State", "When", "QPU time"].filter(Boolean).map((each) => h("span", { role: "columnheader", class: each === "QPU time" ? "n" : "" }, each)));
    renew(this.recent, [head, ...tasks.slice(0, 12).map((task) => h("div", { class: "line", role: "row", "data-task": task.id, "data-state": task.state },
      h("span", { class: "task", role: "cell" }, h("a", { href: `#/task/${task.id}` }, title(task))),
      operator ? h("span", { class: "whose", role: "cell" }, whose(task)) : null,
      h("span", { class: "why", role: "cell" }, badge(task.state), task.error ? ` ${task.error}` : ""),
      h("span", { class: "start", role: "cell" }, clock(task.ended || task.started || task.submitted, this.app.live.now())),
      h("span", { class: "seconds n", role: "cell" }, task.ended ? duration(task.qpu_seconds) : "–")))]);
  }
}

function rank(task) {
  return { queued: 0, running: 1 }[task.state] ?? 2;
}

export function whose(task) {
  return task.account ? `${task.user} · ${task.account}` : task.user;
}

/** The queue: any number of rows, of which only the visible ones exist. */
class QueueList {
  constructor(app, name) {
    this.app = app;
    this.name = name;
    this.parts = new Map();
    this.total = null;
    this.rows = new Map();
    this.free = [];
    this.asked = new Set();
    const operator = app.me.operator;
    this.columns = ["Place", "Task", operator && "Whose", "Why it waits", "Should start", "QPU time"].filter(Boolean);
    this.count = h("p", { class: "muted small" });
    this.room = h("div", { class: "room", role: "none" });
    this.scroll = h("div", { class: "scroll", role: "rowgroup", tabindex: "0", "aria-label": "Waiting tasks; scrolls" }, this.room);
    this.scroll.addEventListener("scroll", () => this.soon(), { passive: true });
    const head = h("div", { class: "line head", role: "row" }, this.columns.map((each, at) => h("span", { role: "columnheader", class: at === this.columns.length - 1 ? "n" : "" }, each)));
    this.table = h("div", { class: `list${operator ? "" : " mine"}`, role: "table", "aria-label": "Queue" }, head, this.scroll);
    this.empty = h("p", { class: "muted" }, "Nothing waits.");
    this.root = h("div", { class: "card" }, h("div", { class: "row" }, h("h2", {}, operator ? "Queue" : "My tasks in the queue"), this.count), this.empty, this.table);
    this.resized = new ResizeObserver(() => this.soon());
    this.resized.observe(this.scroll);
    this.high = 44;
    this.fetch(0);
  }

  end() {
    this.ended = true;
    this.resized.disconnect();
    clearTimeout(this.waiting);
  }

  /** Something changed: fetch what is visible again, at most about once a second. */
  stale() {
    if (this.waiting || this.ended) return;
    const pause = this.total > 1000 ? 2000 : this.total > 50 ? 1000 : 250;
    this.waiting = setTimeout(() => {
      this.waiting = null;
      if (!document.hidden) this.refresh();
    }, pause);
  }

  refresh() {
    const [first, last] = this.visible();
    for (const part of [...this.parts.keys()]) if (part < first || part > last) this.parts.delete(part);
    for (let part = first; part <= last; part += 1) this.fetch(part);
  }

  visible() {
    const top = Math.floor(this.scroll.scrollTop / this.high / PART);
    const bottom = Math.floor((this.scroll.scrollTop + this.scroll.clientHeight) / this.high / PART);
    return [Math.max(0, top), Math.max(0, bottom)];
  }

  async fetch(part) {
    if (this.asked.has(part)) return;
    this.asked.add(part);
    const everybody = this.app.me.operator ? "&everybody=true" : "";
    const found = await this.app.attempt(() => call(`v1/devices/${this.name}/queue?offset=${part * PART}&limit=${PART}${everybody}`), null);
    this.asked.delete(part);
    if (!found || this.ended) return;
    this.total = found.total;
    this.parts.set(part, found.tasks);
    this.draw();
  }

  soon() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => { this.drawing = null; this.draw(); });
  }

  draw() {
    if (this.total === null || this.ended) return;
    const some = this.total > 0;
    this.empty.hidden = some;
    this.table.hidden = !some;
    say(this.count, some ? `${number(this.total)} ${this.total === 1 ? "task" : "tasks"}` : "");
    this.table.setAttribute("aria-rowcount", String(this.total + 1));
    const size = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.high = parseFloat(getComputedStyle(this.table).getPropertyValue("--high")) * size;
    const room = `${this.total * this.high}px`;
    if (this.room.style.height !== room) {
      this.room.style.height = room;
      this.scroll.style.height = `${Math.min(this.total * this.high, 30 * size)}px`;
    }
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / this.high) - 4);
    const last = Math.min(this.total, Math.ceil((this.scroll.scrollTop + this.scroll.clientHeight) / this.high) + 4);
    for (const [at, row] of this.rows) {
      if (at < first || at >= last) {
        this.rows.delete(at);
        this.free.push(row);
      }
    }
    const missing = new Set();
    for (let at = first; at < last; at += 1) {
      const task = (this.parts.get(Math.floor(at / PART)) || [])[at % PART];
      if (!task) missing.add(Math.floor(at / PART));
      let row = this.rows.get(at);
      if (!row) {
        row = this.free.pop() || this.row();
        row.line.style.transform = `translateY(${at * this.high}px)`;
        row.line.setAttribute("aria-rowindex", String(at + 2));
        this.rows.set(at, row);
        if (!row.line.parentNode) this.room.append(row.line);
      }
      this.write(row, task);
    }
    for (const row of this.free) row.line.remove();
    for (const part of missing) if (part * PART < this.total) this.fetchSoon(part);
  }

  /** Fetch a part when the scrolling rests on it. */
  fetchSoon(part) {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      const [first, last] = this.visible();
      for (let each = first; each <= last; each += 1) if (!this.parts.has(each)) this.fetch(each);
      if (part < first || part > last) this.soon();
    }, 60);
  }

  row() {
    const cells = Object.fromEntries(["place", "task", "whose", "why", "start", "seconds"].map((name) => [name, h("span", { class: name === "seconds" ? "seconds n" : name, role: "cell" })]));
    const link = h("a", {});
    cells.task.append(link);
    const line = h("div", { class: "line", role: "row" }, cells.place, cells.task, this.app.me.operator ? cells.whose : null, cells.why, cells.start, cells.seconds);
    return { line, cells, link };
  }

  write(row, task) {
    if (row.task === task && task) return;
    row.task = task;
    const { cells, link, line } = row;
    if (!task) {
      say(cells.place, "…");
      for (const each of [link, cells.whose, cells.why, cells.start, cells.seconds]) say(each, "");
      line.removeAttribute("data-task");
      return;
    }
    line.setAttribute("data-task", task.id);
    line.setAttribute("data-state", task.state);
    say(cells.place, task.state === "running" ? "runs" : task.position === null ? "–" : task.position === 0 ? "next" : number(task.position));
    say(link, title(task));
    link.href = `#/task/${task.id}`;
    say(cells.whose, whose(task));
    say(cells.why, why(task));
    const promise = task.max_wait === null ? "" : ` (by ${clock(task.submitted + task.max_wait, this.app.live.now())})`;
    say(cells.start, task.started ? clock(task.started, this.app.live.now()) : task.expected_start === null ? "unknown" : clock(task.expected_start, this.app.live.now()) + promise);
    say(cells.seconds, duration(task.expected_seconds));
  }
}
