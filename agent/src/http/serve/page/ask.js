// The question at the top of the page: which pod is this? This file knows the answers of `/whois`; it must not know the
// tables below.

import { get } from "./agent.js";
import { element } from "./rows.js";

const field = document.querySelector("#question");
const answer = document.querySelector("#answer");

/** What found the pod, in words; as `pod-index whois` prints it. */
const WORDS = {
  uid: "UID", mirrorUid: "mirror UID", containerId: "container ID", cgroup: "cgroup", logPath: "log path", logLink: "log link",
  ip: "IP", pid: "PID", name: "name", nameOnly: "name only",
};

/** The number of the last question. An answer to an earlier one is not shown. */
let asked = 0;

/** Asks the agent which pod this text belongs to, and shows the answer. Without a text, shows nothing. */
export async function ask(text) {
  asked += 1;
  const number = asked;
  field.value = text;
  if (!text.trim()) {
    answer.hidden = true;
    answer.replaceChildren();
    return;
  }
  let shown;
  try {
    // One query has an answer of one line.
    const found = await get(`whois?q=${encodeURIComponent(text)}`).then((response) => response.json());
    shown = found.found ? pod(found) : nothing(found);
  } catch (error) {
    shown = [element("p", { class: "note bad" }, `No answer: ${error.message}.`)];
  }
  if (number !== asked) return;
  answer.replaceChildren(...shown);
  answer.hidden = false;
}

function pod(found) {
  const { kind, foundBy } = found;
  const by = kind === foundBy || foundBy === "mirrorUid" ? WORDS[foundBy] : `${WORDS[kind] ?? kind}: ${WORDS[foundBy] ?? foundBy}`;
  const removed = found.removed && `This pod no longer exists. It was removed at ${found.removed}.`;
  const contested = found.contested && `Also claimed by ${found.contested.join(", ")}.`;
  const facts = [
    ["Found by", by], ["Container", found.container], ["Node", found.node], ["Workload", workload(found)],
    ["UID", found.podUID], ["UID of the mirror pod", found.mirrorUID],
    ["Labels", Object.entries(found.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(" ")],
  ];
  const list = facts.filter(([, value]) => value).map(([name, value]) => (
    element("div", {}, element("dt", {}, name), element("dd", {}, element("bdi", {}, value)))
  ));
  const notes = [removed, found.contradiction, contested].filter(Boolean);
  return [
    element("p", { class: "pod" }, link(found)), ...notes.map((note) => element("p", { class: "note bad" }, note)), element("dl", {}, ...list),
  ];
}

function nothing({ error, candidates = [] }) {
  const perhaps = candidates.map((candidate) => element("li", {}, link(candidate)));
  return [element("p", { class: "note" }, error), ...(perhaps.length > 0 ? [element("ul", {}, ...perhaps)] : [])];
}

/** The name of a pod; with its UID, a link to it. */
function link({ namespace, name, podUID, mirrorUID }) {
  const uid = podUID ?? mirrorUID;
  const whole = element("bdi", {}, `${namespace}/${name}`);
  return uid ? element("a", { href: `#/pod/${encodeURIComponent(uid)}` }, whole) : whole;
}

/** The workload, marked if it follows from names alone. The pod's own controller is a fact. */
function workload({ workload: of, owner }) {
  if (!of) return "";
  const guessed = of.derived && owner && owner.kind !== of.kind;
  return `${of.kind}/${of.name}${guessed ? " (derived)" : ""}`;
}
