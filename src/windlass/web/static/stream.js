// One stream for all tabs of a browser: the tab that holds the lock listens, and tells the others.
// HTTP/1.1 has six connections for a host, so a stream for each tab would let the seventh hang.
// Where there are no locks (plain HTTP under a name), every page polls while it is seen.
const POLL_MILLISECONDS = 5000;

export function changes(address, tell) {
  const poll = () => setInterval(() => { if (!document.hidden) tell(null); }, POLL_MILLISECONDS);
  if (!navigator.locks || !globalThis.BroadcastChannel || !globalThis.EventSource) {
    poll();
    return;
  }
  const name = `windlass ${address}`;
  const channel = new BroadcastChannel(name);
  channel.addEventListener("message", (event) => tell(event.data));
  navigator.locks.request(name, () => lead(address, channel, tell)).catch(poll);
}

// Resolves, and so releases the lock, when the stream cannot be had at all.
function lead(address, channel, tell) {
  return new Promise((_, reject) => {
    const source = new EventSource(address);
    source.addEventListener("changed", (event) => {
      const changed = JSON.parse(event.data);
      channel.postMessage(changed);
      tell(changed);
    });
    source.addEventListener("error", () => {
      // Whether the server is away, or only the stream has ended, shows when pages are refreshed.
      channel.postMessage(null);
      tell(null);
      if (source.readyState === EventSource.CLOSED) reject(new Error("no stream"));
    });
    globalThis.addEventListener("pagehide", () => source.close());
  });
}
