// Polls the agent. This file knows paths and responses; it must not know how they are shown.

const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io";
/** Pause between two rounds, in milliseconds. */
const PAUSE = 1000;
/** The pause is at least this many times the round's duration. */
const REST = 4;
/** Timeout of a request, in milliseconds. */
const TIMEOUT = 30_000;
/** The window of the rates, in milliseconds. */
const WINDOW = 10_000;

const MIRROR_STATES = {
  inSync: "in sync",
  missing: "missing",
  wrongHash: "of another version",
  terminating: "terminating",
  orphaned: "orphaned",
  finished: "not needed",
};

/** The state of a static pod and its mirror, in words, and whether it is "good", "bad" or neither. */
export function mirrorState(line) {
  if (line.state) {
    const good = line.state === "inSync" || line.state === "finished";
    return { text: MIRROR_STATES[line.state] ?? line.state, tone: good ? "good" : "bad" };
  }
  if (!line.podUID) return { text: "orphaned", tone: "bad" };
  // This agent does not manage mirrors, so the expected state is unknown.
  return line.mirrorUID ? { text: "has one", tone: "good" } : { text: "none", tone: "" };
}

/** Polls the agent that served this page. Calls `told` after each round, successful or not. */
export class Agent {
  /** One object per pod. */
  pods = [];
  /** One object per static pod and per orphaned mirror. */
  mirrors = [];
  sources = [];
  managed = false;
  mirrorProblem = "";
  node = "";
  ready = false;
  generation = 0;
  /** Grows whenever pods or mirrors change. */
  version = 0;
  publications = null;
  changed = null;
  /** Time of the last response; null before the first. */
  answered = null;
  /** The error of the last round; null if it succeeded. */
  problem = null;

  #tag = null;
  #table = [];
  #mirrorText = "";
  #samples = [];

  constructor(told) {
    this.told = told;
  }

  async follow() {
    for (;;) {
      const started = performance.now();
      try {
        await this.#round();
        this.answered = new Date();
        this.problem = null;
      } catch (error) {
        this.problem = error.name === "TimeoutError" ? "timeout" : error.message;
        this.#samples = [];
      }
      this.told();
      const took = performance.now() - started;
      await new Promise((done) => setTimeout(done, Math.max(PAUSE, REST * took)));
      await visible();
    }
  }

  async #round() {
    const [pods, mirrors, sources, metrics] = await Promise.all([
      this.#pods(),
      get("mirrors").then((answer) => answer.text()),
      get("sources").then((answer) => answer.json()),
      get("metrics").then((answer) => answer.text()),
    ]);
    this.node = sources.node;
    this.ready = sources.ready;
    this.sources = sources.sources;
    this.#rates(metrics);
    if (pods || mirrors !== this.#mirrorText) {
      this.#join(mirrors);
      this.version += 1;
    }
  }

  /** Fetches the pods. Returns whether they changed. */
  async #pods() {
    const headers = { Accept: TABLE };
    if (this.#tag) headers["If-None-Match"] = this.#tag;
    const answer = await get("pods", headers);
    if (answer.status === 304) return false;
    const table = await answer.json();
    this.#tag = answer.headers.get("ETag");
    this.#table = table.rows;
    this.generation = Number(table.metadata.resourceVersion);
    return true;
  }

  /** Joins pods with their mirrors. */
  #join(text) {
    const { managed, problem, pods, orphans } = JSON.parse(text);
    this.#mirrorText = text;
    this.managed = managed;
    this.mirrorProblem = problem ?? "";
    this.mirrors = [...orphans, ...pods].map((line) => ({ ...line, mirror: mirrorState(line) }));
    const byUid = new Map(this.mirrors.map((line) => [line.podUID, line]));
    this.pods = this.#table.map(({ cells: [namespace, name, uid, source, kind, phase, node] }) => (
      { namespace, name, uid, source, kind, phase, node, pair: byUid.get(uid) }
    ));
  }

  #rates(metrics) {
    const now = performance.now();
    const value = (name) => Number(metrics.match(new RegExp(`^${name} (\\S+)$`, "m"))?.[1] ?? NaN);
    const sample = { now, publications: value("pod_index_publications_total"), changed: value("pod_index_batch_operations_sum") };
    // Counters that fall belong to a restarted agent.
    if (sample.publications < this.#samples.at(-1)?.publications) this.#samples = [];
    this.#samples.push(sample);
    while (this.#samples.length > 2 && now - this.#samples[1].now > WINDOW) this.#samples.shift();
    const first = this.#samples[0];
    const rate = (of) => (now > first.now ? (sample[of] - first[of]) / ((now - first.now) / 1000) : null);
    this.publications = rate("publications");
    this.changed = rate("changed");
  }
}

/** Requests a path. Fails unless the response is successful or 304. */
export async function get(path, headers = {}) {
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
  if (!answer.ok && answer.status !== 304) {
    throw Object.assign(new Error(`${path} answers ${answer.status}`), { status: answer.status });
  }
  return answer;
}

/** Waits until the page is visible. */
function visible() {
  if (!document.hidden) return undefined;
  return new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}
