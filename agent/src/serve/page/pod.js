// A dialog with one whole pod. This file knows a pod's fields; it must not know where pods are listed.

import { get } from "./agent.js";
import { element, harmless } from "./rows.js";

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
    const pod = await get(`pods/${encodeURIComponent(uid)}`).then((answer) => answer.json());
    if (uid === shown) fill(pod, pair);
  } catch (error) {
    if (uid !== shown) return;
    const gone = error.status === 404;
    body.querySelector(".note")?.remove();
    body.prepend(element("p", { class: "note bad" }, gone ? "This pod no longer exists." : `No answer: ${error.message}.`));
    // Retry in the next round.
    if (!gone) version = -1;
  }
}

function fill(pod, pair) {
  const meta = pod.metadata ?? {};
  const spec = pod.spec ?? {};
  const annotations = meta.annotations ?? {};
  title.replaceChildren(
    element("bdi", { class: "namespace" }, meta.namespace ?? ""), " ", element("bdi", {}, meta.name ?? ""),
  );
  const open = body.querySelector("details")?.open ?? false;
  const facts = [
    ["UID", meta.uid],
    ["Source", annotations["kubernetes.io/config.source"] ?? "api"],
    ["Phase", meta.deletionTimestamp ? "Terminating" : pod.status?.phase],
    ["Node", spec.nodeName],
    ["Mirror pod", pair && [pair.mirror.text, pair.mirrorUID].filter(Boolean).join(" · ")],
    ["Last failure", pair?.lastError && `${pair.lastError.kind}: ${pair.lastError.message}`],
  ];
  const containers = [
    ...(spec.initContainers ?? []).map((container) => [container, "init"]),
    ...(spec.containers ?? []).map((container) => [container, ""]),
    ...(spec.ephemeralContainers ?? []).map((container) => [container, "ephemeral"]),
  ];
  const whole = element("details", { open: open ? "" : undefined }, element("summary", {}, "The whole object"));
  const text = element("pre", { tabindex: "0" });
  // `harmless` removes line ends, so apply it line by line.
  text.textContent = JSON.stringify(pod, null, 2).split("\n").map(harmless).join("\n");
  whole.append(text, element("p", {}, element("a", { href: `pods/${encodeURIComponent(meta.uid ?? "")}` }, "as the agent serves it")));
  body.replaceChildren(
    pairs("Facts", facts.filter(([, value]) => value)),
    pairs("Containers", containers.map(([container, kind]) => [`${container.name}${kind && ` (${kind})`}`, container.image ?? ""])),
    pairs("Labels", Object.entries(meta.labels ?? {})),
    pairs("Annotations", Object.entries(annotations)),
    whole,
  );
}

function pairs(name, entries) {
  if (entries.length === 0) return "";
  const list = element("dl");
  for (const [key, value] of entries) list.append(element("dt", {}, key), element("dd", {}, String(value)));
  return element("section", { class: "pairs" }, element("h3", {}, name), list);
}
