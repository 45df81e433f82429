// A dialog with one whole pod. This file knows a pod's fields; it must not know where pods are listed.

import { get } from "./agent.js";
import { element, sanitized } from "./rows.js";

const dialog = document.querySelector("#pod");
const title = document.querySelector("#pod-title");
const body = document.querySelector("#pod-body");

/** The UID of the pod in the dialog, the version of the data, the view to return to. */
let shown = null;
let version = -1;
let from = "pods";

dialog.addEventListener("close", () => {
  shown = null;
  // Leave by changing the URL's fragment, as when entering.
  if (location.hash.startsWith("#/pod/")) location.hash = `#/${from}`;
});
// A click outside the dialog.
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

/** Shows this pod, or closes the dialog. `pair` is the pod with its mirror, `view` the view behind the dialog. */
export async function show(uid, pair, current, view) {
  from = view;
  if (uid === null) {
    if (dialog.open) dialog.close();
    return;
  }
  if (uid === shown && current === version) return;
  if (uid !== shown) {
    title.textContent = "…";
    body.replaceChildren();
  }
  shown = uid;
  version = current;
  if (!dialog.open) dialog.showModal();
  try {
    const path = `pods/${encodeURIComponent(uid)}`;
    const [pod, yaml] = await Promise.all([
      get(path).then((answer) => answer.json()),
      get(path, { Accept: "application/yaml" }).then((answer) => answer.text()),
    ]);
    if (uid === shown) fill(pod, yaml, pair);
  } catch (error) {
    if (uid !== shown) return;
    const gone = error.status === 404;
    body.querySelector(".note")?.remove();
    body.prepend(element("p", { class: "note bad" }, gone ? "This pod no longer exists." : `No answer: ${error.message}.`));
    // Retry in the next round.
    if (!gone) version = -1;
  }
}

function fill(pod, yaml, pair) {
  const meta = pod.metadata ?? {};
  const spec = pod.spec ?? {};
  const annotations = meta.annotations ?? {};
  title.replaceChildren(
    element("bdi", { class: "namespace" }, meta.namespace ?? ""), " ", element("bdi", {}, meta.name ?? ""),
  );
  const open = body.querySelector("details")?.open ?? false;
  const removed = annotations["pod-index/removed"];
  const facts = [
    ["Source", annotations["kubernetes.io/config.source"] ?? "api"],
    ["Phase", removed ? "" : meta.deletionTimestamp ? "Terminating" : pod.status?.phase],
    ["Node", spec.nodeName],
    ["Mirror pod", pair?.mirror.text],
    ["Last failure", pair?.lastError && `${pair.lastError.kind}: ${pair.lastError.message}`],
  ];
  const containers = [
    ...(spec.initContainers ?? []).map((container) => [container, "init"]),
    ...(spec.containers ?? []).map((container) => [container, ""]),
    ...(spec.ephemeralContainers ?? []).map((container) => [container, "ephemeral"]),
  ];
  const whole = element("details", { open: open ? "" : undefined }, element("summary", {}, "YAML"));
  const text = element("pre", { tabindex: "0" });
  // `sanitized` removes line ends, so apply it line by line.
  text.textContent = yaml.split("\n").map(sanitized).join("\n");
  whole.append(text, element("p", {}, element("a", { href: `pods/${encodeURIComponent(meta.uid ?? "")}` }, "as JSON")));
  body.replaceChildren(
    removed ? element("p", { class: "note bad" }, `This pod no longer exists. It was removed at ${removed}.`) : "",
    pairs("Facts", facts.filter(([, value]) => value)),
    pairs("Keys: each finds this pod", keys(pod, pair)),
    pairs("Containers", containers.map(([container, kind]) => [`${container.name}${kind && ` (${kind})`}`, container.image ?? ""])),
    pairs("Labels", Object.entries(meta.labels ?? {})),
    pairs("Annotations", Object.entries(annotations)),
    whole,
  );
}

/** What identifies the pod, as `/whois` takes it. */
function keys({ metadata = {}, spec = {}, status = {} }, pair) {
  const all = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"].flatMap((list) => status[list] ?? []);
  const ids = all.flatMap(({ name, containerID, lastState }) => [
    [`Container ${name}`, containerID], [`Container ${name}, previous run`, lastState?.terminated?.containerID],
  ]);
  // The node's addresses identify no pod.
  const ips = status.podIPs?.length > 0 ? status.podIPs : [{ ip: status.podIP }];
  const own = spec.hostNetwork ? [] : ips.map(({ ip }) => ["IP", ip]);
  const names = [["Name", `${metadata.namespace}/${metadata.name}`], ["UID", metadata.uid], ["UID of the mirror pod", pair?.mirrorUID]];
  return [...names, ...own, ...ids].filter(([, value]) => value);
}

function pairs(name, entries) {
  if (entries.length === 0) return "";
  const list = element("dl");
  for (const [key, value] of entries) list.append(element("dt", {}, key), element("dd", {}, String(value)));
  return element("section", { class: "pairs" }, element("h3", {}, name), list);
}
