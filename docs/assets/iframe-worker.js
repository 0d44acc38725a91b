// A page from a disk may start no worker, and the search is one: there it runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      this.loaded = new Promise((done) => {
        const attach = () => {
          document.body.append(frame)
          const inside = frame.contentWindow
          this.inside = inside
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
          inside.importScripts = (...urls) =>
            urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve())
          this.load(url).then(done)
        }
        if (document.body) attach()
        else addEventListener("DOMContentLoaded", attach)
      })
    }

    load(url) {
      return new Promise((done) => {
        const script = this.inside.document.createElement("script")
        script.src = url
        script.onload = done
        this.inside.document.body.append(script)
      })
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
