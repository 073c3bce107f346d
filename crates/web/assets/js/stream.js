// A stream of events of the server. It is read with fetch, which, unlike EventSource, sends the token, for which the server keeps
// places, and has the words of a refusal. Must not know what the events say.

/** Without any sign of the server for this long, the stream counts as broken: the server sends one every 5 s. */
const SILENCE_MS = 15_000;

/** The events of a block of lines, `name: value` each. */
function readEvent(block) {
  const event = { id: "", event: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return event;
}

export class EventStream {
  /**
   * Calls `opened()` once, `event({ id, event, data })` for each event, and `failed(why)` once if the stream breaks or ends, or the
   * server refuses it; `why` has its words then.
   */
  constructor(path, token, { opened, event, failed }) {
    this.calls = { opened, event, failed };
    this.ends = new AbortController();
    this.heard();
    this.run(path, token).then(() => this.fail(), () => this.fail());
  }

  async run(path, token) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch(path, { headers, cache: "no-store", signal: this.ends.signal });
    if (!answer.ok) return this.fail((await answer.text()).trim() || `the server answered ${answer.status}`);
    this.heard();
    this.calls.opened?.();
    const [reader, decoder] = [answer.body.getReader(), new TextDecoder()];
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read();
      if (done || this.isClosed) return undefined;
      this.heard();
      const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) if (!this.isClosed) this.calls.event(readEvent(block));
    }
  }

  /** A sign of the server: starts the wait for the next one. */
  heard() {
    clearTimeout(this.silence);
    if (!this.isClosed) this.silence = setTimeout(() => this.fail(), SILENCE_MS);
  }

  fail(why) {
    if (this.isClosed) return;
    this.close();
    this.calls.failed(why);
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.silence);
    this.ends.abort();
  }
}
