// What the agent says, asked for again and again. This file knows paths and answers; it must not know how they are shown.

const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io";
/** Between two rounds, in milliseconds. */
const PAUSE = 1000;
/** A round that takes long is followed by a pause that is so many times as long. */
const REST = 4;
/** How long an answer may take. */
const TIMEOUT = 30_000;
/** Rates are of the last so many milliseconds. */
const WINDOW = 10_000;

const MIRROR_STATES = {
  inSync: "in sync",
  missing: "missing",
  wrongHash: "of another version",
  terminating: "terminating",
  orphaned: "orphaned",
  finished: "not needed",
};

/** How a static pod and its mirror stand to each other, in words, and whether that is "good", "bad" or neither. */
export function mirrorState(line) {
  if (line.state) {
    const good = line.state === "inSync" || line.state === "finished";
    return { text: MIRROR_STATES[line.state] ?? line.state, tone: good ? "good" : "bad" };
  }
  if (!line.podUID) return { text: "orphaned", tone: "bad" };
  // Somebody else keeps them, or nobody: what there should be is not known here.
  return line.mirrorUID ? { text: "has one", tone: "good" } : { text: "none", tone: "" };
}

/** Follows the agent that served this page. After each round `told` is called, whatever came of it. */
export class Agent {
  /** One object for each pod. */
  pods = [];
  /** One for each static pod and each orphaned mirror. */
  mirrors = [];
  sources = [];
  managed = false;
  mirrorProblem = "";
  node = "";
  ready = false;
  generation = 0;
  /** Grows whenever pods or mirrors are others than before. */
  version = 0;
  publications = null;
  changed = null;
  /** When the agent answered last; null before the first time. */
  answered = null;
  /** Why it did not this time; null if it did. */
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
        this.problem = error.name === "TimeoutError" ? "it takes too long" : error.message;
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

  /** Whether they are others than before. */
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

  /** Pods with what is known of their mirrors. */
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
    // Counts that fall are another run's.
    if (sample.publications < this.#samples.at(-1)?.publications) this.#samples = [];
    this.#samples.push(sample);
    while (this.#samples.length > 2 && now - this.#samples[1].now > WINDOW) this.#samples.shift();
    const first = this.#samples[0];
    const rate = (of) => (now > first.now ? (sample[of] - first[of]) / ((now - first.now) / 1000) : null);
    this.publications = rate("publications");
    this.changed = rate("changed");
  }
}

/** Asks for a path; fails unless there is a good answer. */
export async function get(path, headers = {}) {
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
  if (!answer.ok && answer.status !== 304) {
    throw Object.assign(new Error(`${path} answers ${answer.status}`), { status: answer.status });
  }
  return answer;
}

/** Waits until somebody looks. */
function visible() {
  if (!document.hidden) return undefined;
  return new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}
