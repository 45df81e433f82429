// The history of changes. This file knows what differs between two versions of a pod; it must not know how it is shown.

/** Maximum number of changes kept. */
const MOST = 100;
/** The parts of a field's name, such as `status.containerStatuses[web].state`. Deeper fields count as part of it. */
const DEPTH = { metadata: 2, spec: 3, status: 3 };
/** Metadata that changes with each version or with each run of the agent. */
const UNTOLD = ["resourceVersion", "managedFields"];
const UNTOLD_ANNOTATIONS = ["kubernetes.io/config.seen"];
/** The columns whose values are told, with the fields that they show. */
const COLUMNS = { uid: "metadata.uid", source: "", kind: "", phase: "status.phase", node: "spec.nodeName" };

/** What has happened to pods, the newest first. */
export class Changes {
  list = [];

  /**
   * Records that a pod changed from `before` to `after`; one of them is undefined if the pod was added or removed. Without a
   * difference, records `other`, if that is not empty.
   */
  record(before, after, other = "") {
    const event = before && after ? "changed" : after ? "added" : "removed";
    const { namespace, name, uid, phase } = after ?? before;
    const what = event === "changed" ? differences(before, after) || other : phase;
    if (!what) return;
    this.list.unshift({ time: new Date(), event, namespace, name, uid, what });
    this.list.length = Math.min(this.list.length, MOST);
  }
}

/** The differences in words; empty if there are none. */
function differences(before, after) {
  const columns = Object.keys(COLUMNS).filter((column) => before[column] !== after[column]);
  const told = columns.map((column) => `${column}: ${before[column] || "–"} → ${after[column] || "–"}`);
  if (before.whole && after.whole) {
    const [old, now] = [fields(before.whole), fields(after.whole)];
    const names = new Set([...old.keys(), ...now.keys()]);
    const shown = Object.values(COLUMNS);
    told.push(...[...names].filter((name) => old.get(name) !== now.get(name) && !shown.includes(name)).sort());
  }
  return told.join(", ");
}

/** The fields of a pod by name, each as JSON. */
function fields(pod) {
  const found = new Map();
  const walk = (path, depth, value) => {
    const names = Array.isArray(value) && value.map((item) => item?.name ?? item?.type);
    if (names && depth > 0 && names.every((name) => typeof name === "string")) {
      value.forEach((item, i) => walk(`${path}[${names[i]}]`, depth, item));
    } else if (typeof value === "object" && !Array.isArray(value) && value !== null && depth > 0) {
      for (const [name, member] of Object.entries(value)) walk(`${path}.${name}`, depth - 1, member);
    } else if (value !== null && value !== undefined) {
      found.set(path, JSON.stringify(value));
    }
  };
  const without = (object, names) => Object.fromEntries(Object.entries(object ?? {}).filter(([name]) => !names.includes(name)));
  const metadata = without(pod.metadata, UNTOLD);
  metadata.annotations = without(metadata.annotations, UNTOLD_ANNOTATIONS);
  for (const [part, depth] of Object.entries(DEPTH)) walk(part, depth - 1, { ...pod, metadata }[part]);
  return found;
}
