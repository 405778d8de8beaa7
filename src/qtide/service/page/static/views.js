// The other views: signing in, shares, and health.

import { clock, duration, facts, h, number, share, table } from "./dom.js";
import { base, call } from "./live.js";

export class SignInView {
  constructor(root, app, said) {
    const input = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
    const notice = h("p", { class: "notice bad", role: "alert" }, said || "");
    notice.hidden = !said;
    const form = h("form", { onsubmit: async (event) => {
      event.preventDefault();
      try {
        await call("page/session", { method: "POST", form: { token: input.value, base } });
        input.value = "";
        await app.start();
      } catch (error) {
        notice.textContent = error.message;
        notice.hidden = false;
        input.select();
      }
    } }, h("label", {}, h("span", {}, "Token"), input), h("p", { class: "row" }, h("button", { class: "main" }, "Sign in")));
    for (const each of [...form.children].slice(1)) each.style.marginTop = ".9rem";
    root.append(h("section", { class: "card signin", "aria-labelledby": "signin" },
      h("h1", { id: "signin" }, "Sign in"),
      h("p", { class: "muted" }, "Paste a token of this service, or run ", h("code", {}, "qtide page"), " where you have one: it opens this page signed in."),
      notice, form));
    input.focus();
  }

  update() {}
  end() {}
}

export class ShareView {
  constructor(root, app) {
    this.app = app;
    this.box = h("section", { class: "card" });
    this.quotas = h("section", { class: "card" });
    this.all = h("section", { class: "card" });
    this.all.hidden = !app.me.operator;
    root.append(h("h1", {}, "My share"), this.box, this.quotas, this.all);
    this.timer = setInterval(() => !document.hidden && this.fetch(), 5000);
    this.fetch();
  }

  end() {
    clearInterval(this.timer);
  }

  update() {}

  async fetch() {
    const found = await this.app.attempt(() => call("v1/shares"), null);
    if (!found) return;
    const { mine } = found;
    const small = (words) => h("small", {}, words);
    this.box.replaceChildren(facts([
      ["Account", [mine.account, small(`weight ${number(mine.weight)}`)]],
      ["Recent use", [duration(mine.used), small(`counts half after ${duration(found.half_life)}`)]],
      ["Rank now", [`${mine.rank} of ${found.of}`, small("1 goes first, all else equal")]],
    ], "figures"));
    const left = (value, words) => (value === null ? "no limit" : words(value));
    const now = this.app.live.now();
    this.quotas.replaceChildren(h("h2", {}, "What I may still use"), table("Quotas",
      ["Quota of", "Device", "Period", "Tasks now", "Tasks left", "QPU time used or reserved", "QPU time left", "Until"],
      found.quotas.map((row) => ({ cells: [`${row.of} ${row.name}`, row.device ?? "all", row.period, row.tasks === null ? "–" : number(row.tasks), row.tasks === null ? "–" : left(row.tasks_left, number), duration(row.qpu_seconds), left(row.qpu_seconds_left, duration), clock(row.until, now)] }))));
    this.all.replaceChildren(h("h2", {}, "All accounts"), table("Accounts", ["Account", "Rank", "Recent use", "Weight"],
      found.accounts.map((row) => ({ mine: row.account === mine.account, cells: [row.account, number(row.rank), duration(row.used), number(row.weight)] }))));
  }
}

export class HealthView {
  constructor(root, app) {
    this.app = app;
    this.box = h("section", { class: "card" });
    this.levels = h("section", { class: "card" });
    root.append(h("h1", {}, "Health"), this.box, this.levels);
    this.timer = setInterval(() => !document.hidden && this.fetch(), 5000);
    this.fetch();
  }

  end() {
    clearInterval(this.timer);
  }

  update() {}

  async fetch() {
    const [vitals, levels] = await this.app.attempt(() => Promise.all([call("v1/vitals"), call("v1/levels")]), []);
    if (!vitals) return;
    this.box.replaceChildren(h("h2", {}, "Since the service started"), ...(vitals.store ? [h("p", { class: "notice bad" }, vitals.store)] : []), facts([
      ["Commits", number(vitals.commits)],
      ["Failed commits", number(vitals.failed_commits)],
      ["Retries", number(vitals.retries)],
      ["Refusals", number(vitals.refusals)],
      ["Worker restarts", number(vitals.worker_restarts)],
      ["Calls to Slurm", number(vitals.slurm_calls)],
    ], "figures"));
    const columns = ["Device", "Availability", "Occupancy", "Wait, median", "Wait, 95 %", "Longest wait", "Promises kept", "Calibrated", "Drained", "Tasks"];
    this.levels.replaceChildren(h("h2", {}, "Service levels, last 30 days"),
      table("Service levels", columns, levels.devices.map((row) => ({ cells: [row.device, share(row.availability), share(row.occupancy), duration(row.wait.p50), duration(row.wait.p95), duration(row.wait.p50 === null ? null : row.wait.longest), row.promises_kept === null ? "none given" : share(row.promises_kept), duration(row.seconds.calibration), duration(row.seconds.maintenance), number(row.tasks.done + row.tasks.failed + row.tasks.cancelled)] }))),
      h("p", { class: "muted small" }, "Availability is the share of the time outside planned calibrations and maintenance in which the device and the service were up. The same table: ", h("code", {}, "qtide usage --sla"), "."));
  }
}
