// Search without a server: from the file system browsers start no worker, so a hidden frame is one.
if (location.protocol === "file:") {
  const inside = `<script>
    window.postMessage = data => frameElement.answer(data)
    window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() =>
      new Promise((resolve, reject) => {
        const script = document.createElement("script")
        Object.assign(script, { src: url, onload: resolve, onerror: reject })
        document.body.append(script)
      })), Promise.resolve())
  <\/script>`

  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.answer = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise(resolve => { this.frame.onload = resolve })
      this.frame.srcdoc = `<body>${inside}<script src="${url}"><\/script></body>`
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
