// The service: requests, and the stream of changes, which comes back by itself.

export class Refused extends Error {
  constructor(status, message, leader) {
    super(message);
    this.status = status;
    this.leader = leader; // where another service leads, if this one stands by
  }
}

/** All URLs are relative to the page, so that it works behind a proxy's prefix. */
export const base = new URL(".", location.href.split("#")[0]).pathname;

export async function call(path, { method = "GET", form } = {}) {
  const headers = { "X-Qtide-Page": "1" };
  if (form !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(base + path, {
    method, headers, body: form === undefined ? undefined : JSON.stringify(form), credentials: "same-origin", cache: "no-store",
  });
  if (answer.status === 204) return null;
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, said.message || `the service answered ${answer.status}`, said.leader);
  return said;
}

const SILENCE = 25000;
const HIDDEN = 30000;

/** Devices and recent tasks, kept up to date; tells listeners what has changed. */
export class Live {
  constructor(tell, link) {
    this.devices = new Map();
    this.tasks = new Map();
    this.late = 0; // the service's clock less ours, in seconds
    this.tell = tell;
    this.link = link;
    this.last = "";
    this.pause = 500;
    this.source = null;
    document.addEventListener("visibilitychange", () => this.seen());
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => event.persisted && this.open());
  }

  now() {
    return Date.now() / 1000 + this.late;
  }

  open() {
    this.close();
    const source = new EventSource(`${base}v1/events?after=${encodeURIComponent(this.last)}`);
    this.source = source;
    const on = (kind, handle) => source.addEventListener(kind, (event) => {
      if (source !== this.source) return;
      this.heard();
      if (event.lastEventId) this.last = event.lastEventId;
      handle(JSON.parse(event.data));
    });
    on("whole", (words) => {
      this.devices = new Map(words.devices.map((each) => [each.name, each]));
      this.tasks = new Map(words.tasks.map((each) => [each.id, each]));
      this.late = words.now - Date.now() / 1000;
      this.tell({ whole: true, tasks: words.tasks, more: true });
    });
    on("message", (words) => {
      for (const each of words.devices) this.devices.set(each.name, each);
      for (const each of words.tasks) this.keep(each);
      this.late = words.now - Date.now() / 1000;
      this.tell({ whole: false, devices: words.devices, tasks: words.tasks, more: words.more });
    });
    on("beat", (words) => { this.late = words.now - Date.now() / 1000; });
    source.addEventListener("error", () => source === this.source && this.lost());
    this.watch();
  }

  keep(task) {
    this.tasks.delete(task.id);
    this.tasks.set(task.id, task);
    if (this.tasks.size > 500) this.tasks.delete(this.tasks.keys().next().value);
  }

  heard() {
    this.pause = 500;
    this.link("live");
    this.watch();
  }

  watch() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.lost(), SILENCE);
  }

  lost(leader) {
    this.close();
    if (/^https?:/.test(leader)) this.link("moved", leader);
    else this.link("lost");
    this.again = setTimeout(async () => {
      try {
        await call("v1/me");
        this.open();
      } catch (error) {
        if (error instanceof Refused && error.status === 401) this.link("out");
        else this.lost(error.leader);
      }
    }, this.pause);
    this.pause = Math.min(5000, 1.6 * this.pause);
  }

  seen() {
    clearTimeout(this.leaving);
    if (document.hidden) this.leaving = setTimeout(() => { this.close(); this.away = true; }, HIDDEN);
    else if (this.away) { this.away = false; this.open(); }
  }

  close() {
    clearTimeout(this.again);
    clearTimeout(this.silence);
    if (this.source) this.source.close();
    this.source = null;
  }
}
