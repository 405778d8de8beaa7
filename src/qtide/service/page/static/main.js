// The page: who looks at it, which view it shows, and what has changed.

import { h, say, title } from "./dom.js";
import { base, call, Live, Refused } from "./live.js";
import { DevicesView } from "./devices.js";
import { TaskView } from "./task.js";
import { HealthView, ShareView, SignInView } from "./views.js";

const LINKS = { live: "Live", lost: "Reconnecting …", out: "Signed out" };

class App {
  constructor() {
    this.main = document.getElementById("main");
    this.nav = document.getElementById("nav");
    this.view = null;
    this.me = null;
    this.live = new Live((change) => this.changed(change), (state, leader) => this.linked(state, leader));
    addEventListener("hashchange", () => this.me && this.route());
  }

  async start() {
    const key = new URLSearchParams(location.hash.slice(1)).get("key");
    let said = "";
    if (key) {
      history.replaceState(null, "", `${location.pathname}#/`);
      await call("page/session", { method: "POST", form: { key, base } }).catch((error) => { said = error.message; });
    }
    try {
      this.me = await call("v1/me");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) this.signIn(said);
      else setTimeout(() => this.start(), 1000);
      return;
    }
    this.nav.hidden = false;
    const who = this.me.account ? `${this.me.user} · ${this.me.account}` : this.me.user;
    const role = this.me.operator ? h("span", { class: "badge" }, "operator") : null;
    const leave = this.me.anonymous ? null : h("button", { class: "plain", onclick: () => this.leave() }, "Sign out");
    document.getElementById("who").replaceChildren(...[h("span", {}, who), role, leave].filter(Boolean));
    this.route();
    this.live.open();
  }

  signIn(said) {
    this.me = null;
    this.live.close();
    this.nav.hidden = true;
    document.getElementById("who").replaceChildren();
    this.link = document.getElementById("link");
    say(this.link, "");
    this.show((root) => new SignInView(root, this, said));
  }

  async leave() {
    await call("page/leave", { method: "POST", form: { base } });
    this.signIn("");
  }

  route() {
    const [, view, word] = (location.hash.slice(1) || "/").split("/");
    const views = {
      "": (root) => new DevicesView(root, this, null),
      device: (root) => new DevicesView(root, this, word),
      task: (root) => new TaskView(root, this, word),
      share: (root) => new ShareView(root, this),
      health: (root) => new HealthView(root, this),
    };
    const at = { device: "#/", task: "#/" }[view] || `#/${view}`;
    for (const link of this.nav.children) {
      if (link.getAttribute("href") === at) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = "qtide";
    const moved = this.view !== null;
    this.show(views[view] || views[""]);
    if (moved && this.view.detail) this.view.enter();
    else if (moved) this.main.focus();
  }

  show(make) {
    if (this.view) this.view.end();
    this.main.replaceChildren();
    this.view = make(this.main);
  }

  changed(change) {
    for (const task of change.whole ? [] : change.tasks) {
      if (task.user === this.me.user && task.ended && change.tasks.length < 4) say(document.getElementById("told"), `${title(task)} is ${task.state}`);
    }
    if (this.view) this.view.update(change);
  }

  linked(state, leader) {
    if (state === "out") {
      this.signIn("The token is not valid any more.");
      return;
    }
    const link = document.getElementById("link");
    link.dataset.link = state;
    if (state !== "moved") say(link, LINKS[state]);
    else if (!link.firstElementChild) link.replaceChildren(h("a", { href: `${leader.replace(/\/$/, "")}/${location.hash}` }, "Another service leads now"));
  }

  /** Does something at the service; a refusal is shown, and a lost service is not: the stream tells. */
  async attempt(work, otherwise = null) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof Refused && error.status !== 404 && error.status !== 401) this.complain(error.message);
      return otherwise;
    }
  }

  complain(words) {
    const notice = h("p", { class: "notice bad", role: "alert" }, words);
    this.main.prepend(notice);
    setTimeout(() => notice.remove(), 8000);
  }
}

new App().start();
