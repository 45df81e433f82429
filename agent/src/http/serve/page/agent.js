// Watches the agent's pods and polls the rest. This file knows paths and responses; it must not know how they are shown.

import { Changes } from "./changes.js";

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

/** Follows the agent that served this page. Calls `told` after each round, successful or not. */
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
  watchers = NaN;
  /** Time of the last response; null before the first. */
  answered = null;
  /** The error of the last round; null if it succeeded. */
  problem = null;

  #changes = new Changes();

  /** The pods, by namespace and name. */
  #rows = new Map();
  /** The mirror pods, and their static pods, by each UID. */
  #pairs = new Map();
  #listed = false;
  #rowsChanged = false;
  /** The version of the pods; null: list them again. */
  #version = null;
  #watching = false;
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
        // Another agent may answer next.
        this.#version = null;
      }
      this.told();
      const took = performance.now() - started;
      await new Promise((done) => setTimeout(done, Math.max(PAUSE, REST * took)));
      await visible();
    }
  }

  async #round() {
    const sources = await get("sources").then((answer) => answer.json());
    const [, mirrors, metrics] = await Promise.all([
      this.#pods(sources),
      get("mirrors").then((answer) => answer.text()),
      get("metrics").then((answer) => answer.text()),
    ]);
    this.node = sources.node;
    this.ready = sources.ready;
    this.sources = sources.sources;
    this.#rates(metrics);
    if (this.#rowsChanged || mirrors !== this.#mirrorText) {
      this.#rowsChanged = false;
      this.#join(mirrors);
      this.version += 1;
    }
  }

  /** What has happened to pods since the page was opened, the newest first. */
  get changes() {
    return this.#changes.list;
  }

  /** The UID under which the node knows a pod. */
  nodeUid(uid) {
    return this.#pairs.get(uid)?.podUID ?? uid;
  }

  /** Makes sure that a watch updates the pods. */
  async #pods({ ready }) {
    if (this.#watching) return;
    if (this.#version === null) {
      await this.#list(ready);
    }
    // An agent that is not ready has no version to watch from.
    if (this.#version === null) return;
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(new DOMException("", "TimeoutError")), TIMEOUT);
    const path = `pods?watch=true&allowWatchBookmarks=true&resourceVersion=${this.#version}`;
    const answer = await fetch(path, { headers: { Accept: TABLE }, cache: "no-store", signal: limit.signal });
    clearTimeout(timer);
    if (!answer.ok) {
      // There are too many watches. The next round lists.
      this.#version = null;
      return;
    }
    this.#watching = true;
    // If the watch is cut, the next round starts another.
    void this.#watch(answer.body.getReader()).catch(() => {}).finally(() => { this.#watching = false; });
  }

  async #list(ready) {
    const list = await get(ready ? "pods?limit=0" : "pods", { Accept: TABLE }).then((answer) => answer.json());
    this.#version = ready ? list.metadata.resourceVersion : null;
    const before = this.#rows;
    this.#rows = new Map(list.rows.map(row).map((pod) => [key(pod), pod]));
    this.#rowsChanged = true;
    if (this.#listed) {
      for (const [name, pod] of before) if (!this.#rows.has(name)) this.#changes.record(pod, undefined);
      for (const [name, pod] of this.#rows) this.#changes.record(before.get(name), pod);
    }
    // An agent that is not ready lists only some of its pods.
    this.#listed = ready;
  }

  async #watch(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) this.#event(JSON.parse(line));
    }
  }

  #event({ type, object }) {
    this.#version = type === "ERROR" ? null : object.metadata.resourceVersion;
    if (type === "ERROR" || type === "BOOKMARK") return;
    const pod = row(object.rows[0]);
    const before = this.#rows.get(key(pod));
    if (type === "DELETED") this.#rows.delete(key(pod));
    else this.#rows.set(key(pod), pod);
    if (type === "DELETED") this.#changes.record(pod, undefined);
    else this.#changes.record(before, pod, "fields that are not listed here");
    this.#rowsChanged = true;
  }

  /** Joins pods with their mirrors. */
  #join(text) {
    const { managed, problem, pods, orphans } = JSON.parse(text);
    this.#mirrorText = text;
    this.managed = managed;
    this.mirrorProblem = problem ?? "";
    this.mirrors = [...orphans, ...pods].map((line) => ({ ...line, mirror: mirrorState(line) }));
    this.#pairs = new Map(this.mirrors.flatMap((line) => [[line.podUID, line], [line.mirrorUID, line]]));
    this.pods = [...this.#rows.values()].map((pod) => {
      const { uid, kind } = pod;
      const pair = this.#pairs.get(uid);
      // The agent may show a static pod as its mirror. A mirror without a static pod is no pod of the node.
      const own = kind === "mirror" ? { uid: pair?.podUID, kind: "static" } : { uid, kind };
      return { ...pod, pair, ...own };
    }).filter((pod) => pod.uid);
  }

  #rates(metrics) {
    const now = performance.now();
    const value = (name) => Number(metrics.match(new RegExp(`^${name} (\\S+)$`, "m"))?.[1] ?? NaN);
    const sample = { now, publications: value("pod_index_publications_total"), changed: value("pod_index_operations_total") };
    // Counters that fall belong to a restarted agent.
    if (sample.publications < this.#samples.at(-1)?.publications) this.#samples = [];
    this.#samples.push(sample);
    while (this.#samples.length > 2 && now - this.#samples[1].now > WINDOW) this.#samples.shift();
    const first = this.#samples[0];
    const rate = (of) => (now > first.now ? (sample[of] - first[of]) / ((now - first.now) / 1000) : null);
    this.generation = value("pod_index_generation");
    this.publications = rate("publications");
    this.changed = rate("changed");
    this.watchers = value("pod_index_watches");
  }
}

/** Identifies a pod in a watch. */
function key({ namespace, name }) {
  return `${namespace}/${name}`;
}

/** The columns of a row. An older agent has no status. */
function row({ cells }) {
  const [namespace, name, uid, source, kind, phase, node, ready, status, restarts, created, ip, workload, images, labels] = cells;
  return { namespace, name, uid, source, kind, node, ready, status: status || phase, restarts, created, ip, workload, images, labels };
}

/** Requests a path. Fails unless the response is successful. */
export async function get(path, headers = {}) {
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
  if (!answer.ok) {
    throw Object.assign(new Error(`${path} answers ${answer.status}`), { status: answer.status });
  }
  return answer;
}

/** Waits until the page is visible. */
function visible() {
  if (!document.hidden) return undefined;
  return new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}
