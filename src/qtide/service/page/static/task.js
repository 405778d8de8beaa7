// One task: its story, why it waits, what it asked and what came back.

import { circuit, histogram, samples } from "./charts.js";
import { ask, badge, change, clock, duration, facts, h, number, title, why } from "./dom.js";
import { call } from "./live.js";
import { whose } from "./devices.js";

const sentence = (words) => words[0].toUpperCase() + words.slice(1);
const OVER = ["done", "failed", "cancelled"];

export class TaskView {
  constructor(root, app, id) {
    this.app = app;
    this.id = id;
    this.top = h("section", { class: "card" }, h("p", { class: "muted" }, "The task is being read."));
    this.told = h("section", { class: "card", "aria-labelledby": "story" });
    this.content = h("section", { class: "card", "aria-labelledby": "content" });
    this.content.hidden = true;
    root.append(h("p", {}, h("a", { href: "#/" }, "← Devices")), this.top, this.told, this.content);
    this.timer = setInterval(() => this.task && !OVER.includes(this.task.state) && this.fetch(), 2000);
    this.fetch();
  }

  end() {
    this.ended = true;
    clearInterval(this.timer);
  }

  update(found) {
    if (found.whole || found.tasks.some((task) => task.id === this.id)) this.fetch();
  }

  async fetch() {
    const [task, story] = await this.app.attempt(() => Promise.all([call(`v1/tasks/${this.id}`), call(`v1/tasks/${this.id}/story`)]), []);
    if (this.ended) return;
    if (!task) {
      if (!this.task) this.top.replaceChildren(h("p", {}, "There is no such task, or it is not yours."));
      return;
    }
    const changed = !this.task || this.task.state !== task.state;
    this.task = task;
    this.id = task.id;
    this.draw(task, story);
    if (changed) this.fetchContent(task);
  }

  draw(task, story) {
    const now = this.app.live.now();
    const over = OVER.includes(task.state);
    const device = this.app.live.devices.get(task.device);
    const waiting = task.state === "queued";
    document.title = `${title(task)} · qtide`;
    const cancel = over ? null : h("button", { class: "bad end", onclick: () => this.cancel() }, "Cancel the task");
    const focused = document.activeElement && this.top.contains(document.activeElement);
    this.top.replaceChildren(
      h("div", { class: "row" }, h("h1", {}, title(task)), h("span", { "aria-live": "polite" }, badge(task.state)), cancel || ""),
      waiting ? h("p", {}, h("strong", {}, `${sentence(why(task))}. `), task.expected_start ? `It should start at ${clock(task.expected_start, now)}, in ${duration(Math.max(0, task.expected_start - now))}. ` : "When it starts is unknown. ", change(task, device)) : "",
      task.error ? h("p", { class: "notice bad" }, task.error) : "",
      facts([
        ["Task", h("code", {}, task.id)],
        ["Device", h("a", { href: `#/device/${task.device}` }, task.device)],
        ["Owner", whose(task)],
        ["Slurm job", task.job === null ? null : String(task.job)],
        ["Submitted", clock(task.submitted, now)],
        ["Promised start", task.max_wait === null ? null : `by ${clock(task.submitted + task.max_wait, now)}`],
        ["Waited", task.started ? duration(task.started - task.submitted) : waiting ? duration(now - task.submitted) : null],
        ["QPU time", over ? `${duration(task.qpu_seconds)} charged` : `${duration(task.expected_seconds)} expected`],
        ["Attempts", task.attempts ? number(task.attempts) : null],
        ["Asked for", `${task.format}${task.size > 1 ? `, ${number(task.size)} circuits` : ""}, ${number(task.shots)} ${task.shots === 1 ? "shot" : "shots"}`],
        ["Calibration set", task.calibration ? h("code", {}, String(task.calibration)) : null],
      ]));
    if (focused && cancel) cancel.focus();
    this.told.replaceChildren(h("h2", { id: "story" }, "Story"), h("ol", { class: "story" }, story.map((each) => h("li", {}, h("time", { datetime: new Date(each.at * 1000).toISOString() }, each.at > task.submitted ? `${clock(each.at, now)} +${duration(each.at - task.submitted)}` : clock(each.at, now)), " ", each.what))));
  }

  async cancel() {
    const sure = await ask(`Cancel ${title(this.task)}? It cannot be continued.`, { action: "Cancel the task", bad: true });
    if (sure) await this.app.attempt(() => call(`v1/tasks/${this.id}/cancel`, { method: "POST" }));
    this.fetch();
  }

  async fetchContent(task) {
    if (task.user !== this.app.me.user) return;
    const found = await call(`v1/tasks/${this.id}/drawing`).catch((error) => ({ payload_error: error.message }));
    if (this.ended) return;
    const parts = [];
    if (found.circuit) parts.push(h("h3", {}, found.circuits > 1 ? `First of ${number(found.circuits)} circuits` : "Circuit"), circuit(found.circuit));
    if (found.model) parts.push(h("p", {}, `A model with ${number(found.model.variables)} ${found.model.vartype.toLowerCase()} variables and ${number(found.model.couplings)} ${found.model.couplings === 1 ? "coupling" : "couplings"}.`));
    if (found.burst !== undefined) parts.push(h("p", {}, `Occupies the device for ${duration(found.burst)}.`));
    if (found.payload_error) parts.push(h("p", { class: "muted" }, found.payload_error));
    if (found.counts) parts.push(h("h3", {}, "Counts"), histogram(found.counts));
    if (found.samples) parts.push(h("h3", {}, "Best samples"), samples(found.samples));
    if (found.value !== undefined) parts.push(h("h3", {}, "Answer"), h("p", {}, h("code", {}, found.value)));
    if (found.answer_error) parts.push(h("p", { class: "muted" }, found.answer_error));
    this.content.hidden = !parts.length;
    this.content.replaceChildren(h("h2", { id: "content" }, "Payload and answer"), h("p", { class: "muted small" }, "Only you see this."), ...parts.flat(9).filter(Boolean));
  }
}
