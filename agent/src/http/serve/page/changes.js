// The history of changes. This file knows what differs between two versions of a pod; it must not know how it is shown.

/** Maximum number of changes kept. */
const MOST = 100;
/** The columns whose values are told. */
const COLUMNS = ["uid", "source", "kind", "status", "ready", "restarts", "node", "ip", "workload", "images", "labels"];

/** What has happened to pods, the newest first. */
export class Changes {
  list = [];

  /**
   * Records that a pod changed from `before` to `after`; one of them is undefined if the pod was added or removed. Without a
   * difference, records `other`, if that is not empty.
   */
  record(before, after, other = "") {
    const event = before && after ? "changed" : after ? "added" : "removed";
    const { namespace, name, uid, status } = after ?? before;
    const what = event === "changed" ? differences(before, after) || other : status || "–";
    if (!what) return;
    this.list.unshift({ time: new Date(), event, namespace, name, uid, what });
    this.list.length = Math.min(this.list.length, MOST);
  }
}

/** The differences in words; empty if there are none. */
function differences(before, after) {
  const columns = COLUMNS.filter((column) => before[column] !== after[column]);
  return columns.map((column) => `${column}: ${before[column] || "–"} → ${after[column] || "–"}`).join("; ");
}
