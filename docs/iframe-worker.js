/* Lets the search work when the site is read from disk: browsers start no worker there, so its
   script runs in a hidden frame instead. Over HTTP nothing is changed. */
if (location.protocol === "file:") {
  // As between threads: messages are copied, and arrive later.
  const send = (target, data) => {
    const event = new MessageEvent("message", { data: structuredClone(data) });
    setTimeout(() => target.dispatchEvent(event));
  };

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => send(this, data);
      this.addEventListener("message", (event) => this.onmessage?.(event));
      this.ready = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = () => resolve(inside);
        script.onerror = reject;
        inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then((inside) => send(inside, data));
    }

    terminate() {}
  };
}
