// The page: shows the agent's responses. This file connects the others.

import { Agent } from "./agent.js";
import { ask } from "./ask.js";
import { show } from "./pod.js";
import { Rows, element } from "./rows.js";

/** In the order of the keys 1, 2, … */
const VIEWS = ["pods", "mirrors", "changes", "sources"];
/** Maximum number of problems listed per source. */
const PROBLEMS = 200;
/** What runs on with the clock in the state of a source. */
const RUNNING = new Set(["secondsSinceHeard", "secondsFailing", "nextTry", "waitsFor"]);

const by = (id) => document.getElementById(id);
const link = (row) => element("a", { href: `#/pod/${encodeURIComponent(row.uid)}` }, element("bdi", {}, row.name));
const isolated = (text) => element("bdi", {}, text || "–");
const badge = ({ text, tone }) => element("span", { class: `badge ${tone}` }, text);
const plain = (name, key = name.toLowerCase()) => ({ name, class: key, text: (row) => row[key], cell: (row) => isolated(row[key]) });
const ago = (time) => (time ? age(Math.max(0, Math.floor((Date.now() - Date.parse(time)) / 1000))) : "–");

/** Whether a status asks for attention. Those of a pod that starts, runs, has succeeded or ends do not. */
function isBad(status) {
  return !/^(Pending|Running|Succeeded|Completed|Terminating|ContainerCreating|PodInitializing|SchedulingGated|Init:\d+\/\d+|)$/.test(status);
}

const pods = new Rows(by("pods"), {
  label: "Pods", one: "pod", many: "pods", none: "The index holds no pods.",
  columns: [
    plain("Namespace"),
    { name: "Name", class: "name", text: (row) => row.name, cell: link },
    plain("Ready"),
    { ...plain("Status"), cell: (row) => (isBad(row.status) ? badge({ text: row.status, tone: "bad" }) : isolated(row.status)) },
    { ...plain("Restarts"), order: (row) => Number(row.restarts) },
    { name: "Age", class: "since", text: (row) => row.created, cell: (row) => element("time", { datetime: row.created }, ago(row.created)) },
    plain("IP"),
    { name: "Mirror", class: "mirror", text: (row) => row.pair?.mirror.text ?? "", cell: (row) => row.pair && badge(row.pair.mirror) },
    plain("Images"),
    plain("Workload"),
    plain("Labels"),
    plain("Node"),
    { name: "Kind", class: "kind", text: (row) => (row.kind === "pod" ? "" : row.kind) },
    plain("Source"),
    plain("UID"),
  ],
});

const mirrors = new Rows(by("mirrors"), {
  label: "Static pods and their mirrors", one: "pair", many: "pairs", none: "There are no static pods and no mirrors.",
  columns: [
    { name: "Namespace", class: "namespace", text: (row) => row.namespace, cell: (row) => isolated(row.namespace) },
    { name: "Name", class: "name", text: (row) => row.name, cell: (row) => (row.podUID ? link({ uid: row.podUID, name: row.name }) : isolated(row.name)) },
    { name: "Mirror", class: "mirror", text: (row) => row.mirror.text, cell: (row) => badge(row.mirror) },
    { name: "Last error", class: "wait", text: failure },
    { name: "UID of the static pod", class: "uid", text: (row) => row.podUID ?? "" },
    { name: "UID of the mirror", class: "uid", text: (row) => row.mirrorUID ?? "" },
  ],
});

const changes = new Rows(by("changes"), {
  label: "Changes", one: "change", many: "changes", none: "Nothing has changed since this page was opened.", descending: true,
  columns: [
    { name: "Time", class: "time", text: (row) => clock(row.time, true), cell: (row) => clock(row.time) },
    { name: "Event", class: "event", text: (row) => row.event, cell: (row) => badge({ text: row.event, tone: TONES[row.event] }) },
    { name: "Namespace", class: "namespace", text: (row) => row.namespace, cell: (row) => isolated(row.namespace) },
    { name: "Name", class: "name", text: (row) => row.name, cell: (row) => link({ uid: agent.nodeUid(row.uid), name: row.name }) },
    { name: "What", class: "what", text: (row) => row.what, cell: (row) => isolated(row.what) },
  ],
});

const TONES = { added: "good", removed: "bad", changed: "" };

/** The local time of day. `exact`: with the date and milliseconds, in an order that can be sorted. */
function clock(time, exact = false) {
  const day = time.toLocaleTimeString("en-GB");
  return exact ? `${time.toLocaleDateString("sv")} ${day}.${String(time.getMilliseconds()).padStart(3, "0")}` : day;
}

function failure(row) {
  return row.lastError ? `${row.lastError.kind}: ${row.lastError.message}` : "";
}

const agent = new Agent(update);
let version = -1;
let view = "pods";

/** Shows the last response and whether the agent still answers. */
function update() {
  state();
  document.querySelector("main").hidden = !agent.answered;
  if (agent.answered) {
    figures();
    sources();
    for (const time of document.querySelectorAll("#pods time")) time.textContent = ago(time.dateTime);
  }
  if (agent.version !== version) {
    version = agent.version;
    pods.set(agent.pods);
    mirrors.set(agent.mirrors);
    changes.set(agent.changes);
  }
  route();
}

function state() {
  const time = agent.answered?.toLocaleTimeString("en-GB");
  const away = agent.problem !== null;
  const missing = agent.sources.filter((source) => !source.seen).map((source) => source.source);
  const [is, text] = away
    ? ["away", time ? `No answer since ${time}; showing data from then` : "The agent does not answer"]
    : agent.ready ? ["ready", "Live, ready"] : ["unready", `Live, not ready: waits for ${missing.join(", ")}`];
  const line = by("state");
  line.dataset.state = is;
  line.title = agent.problem ?? "";
  // Screen readers announce every change, even to the same text.
  if (line.textContent !== text) line.textContent = text;
  document.body.classList.toggle("away", away);
  document.title = `${away ? "No answer – " : ""}${agent.node || "pod-index"}${agent.node ? " – pod-index" : ""}`;
  by("node").textContent = agent.node;
}

function figures() {
  const number = (count) => count.toLocaleString("en");
  const rate = (value) => (value === null ? "–" : value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 }));
  const pairs = agent.mirrors.filter((line) => line.podUID);
  const mirrored = pairs.filter((line) => line.mirror.tone === "good").length;
  by("figure-pods").textContent = number(agent.pods.length);
  by("figure-static").textContent = number(agent.pods.filter((pod) => pod.kind === "static").length);
  by("figure-mirrored").textContent = `${number(mirrored)} of ${number(pairs.length)}`;
  by("figure-generation").textContent = number(agent.generation);
  by("figure-publications").textContent = rate(agent.publications);
  by("figure-changed").textContent = rate(agent.changed);
  by("figure-watchers").textContent = Number.isNaN(agent.watchers) ? "–" : number(agent.watchers);
  const silences = agent.sources.map((source) => source.secondsSinceHeard ?? Infinity);
  by("figure-silence").textContent = silences.length > 0 ? age(Math.max(...silences)) : "–";
}

/** A number of seconds in words. */
function age(seconds) {
  if (!Number.isFinite(seconds)) return "never heard";
  const units = [["s", 1, 120], ["min", 60, 7200], ["h", 3600, 172_800], ["d", 86_400, Infinity]];
  const [unit, size] = units.find(([, , end]) => seconds < end);
  return `${Math.floor(seconds / size)} ${unit}`;
}

let told = "";

/** Whether the problem may hide a pod and needs attention. */
function isGrave(problem) {
  return !["skipped", "warning", "unhinted", "incomplete"].includes(problem.kind);
}

function sources() {
  const grave = agent.sources.flatMap((source) => source.problems).filter(isGrave);
  const badge = by("problems");
  badge.hidden = grave.length === 0;
  badge.textContent = grave.length === 1 ? "1 problem" : `${grave.length.toLocaleString("en")} problems`;
  const telling = JSON.stringify([agent.sources, agent.mirrorProblem], (name, value) => (RUNNING.has(name) ? undefined : value));
  if (telling !== told) cards();
  told = telling;
  // Replacing the cards each second would undo selections.
  const cardsOfSources = document.querySelectorAll("#sources article");
  agent.sources.forEach((source, i) => {
    const write = (role, words) => {
      const value = cardsOfSources[i].querySelector(`.${role}`);
      value.textContent = words ?? "";
      value.parentElement.hidden = words === undefined;
    };
    write("heard", source.secondsSinceHeard === undefined ? "never" : `${age(source.secondsSinceHeard)} ago`);
    write("next-try", source.nextTry && clock(new Date(source.nextTry)));
    write("waits-for", source.waitsFor);
  });
}

function cards() {
  const all = agent.sources.map((source) => {
    const facts = [
      ["Pods", source.pods], ["Reads", source.checks], ["Failed reads", source.failedChecks], ["Changes", source.updates],
      ...(source.relists ? [["Relists", source.relists]] : []),
      ["Last read", source.lastCheck ? clock(new Date(source.lastCheck)) : "none yet"], ["Last heard", "", "heard"],
      ["Next try", "", "next-try"], ["Waits for", "", "waits-for"],
    ];
    const list = element("dl", {}, ...facts.map(([name, value, role]) => (
      element("div", {}, element("dt", {}, name), element("dd", { class: role }, typeof value === "number" ? value.toLocaleString("en") : value))
    )));
    return element("article", {},
      element("h2", {}, source.source, " ", element("span", { class: source.seen ? "badge good" : "badge bad" }, source.seen ? "read" : "not read yet")),
      element("p", { class: "origin" }, element("bdi", {}, source.origin)), list, problems(source.problems));
  });
  if (agent.mirrorProblem) all.unshift(element("p", { class: "note bad" }, `Mirror pods: ${agent.mirrorProblem}`));
  by("sources").replaceChildren(...all);
}

function problems(all) {
  if (all.length === 0) return element("p", { class: "quiet" }, "Nothing is wrong.");
  const items = all.slice(0, PROBLEMS).map((problem) => {
    const place = [problem.origin, problem.line].filter(Boolean).join(":");
    return element("li", { class: isGrave(problem) ? "" : "quiet" },
      element("code", {}, place), " ", element("strong", {}, problem.field ?? problem.kind), " ", problem.message.replace(/\s+/g, " "));
  });
  if (all.length > PROBLEMS) items.push(element("li", {}, `and ${(all.length - PROBLEMS).toLocaleString("en")} more: `, element("a", { href: "sources" }, "sources")));
  return element("ul", { class: "problems" }, ...items);
}

/** Shows the view and the pod in the URL's fragment. */
function route() {
  const [, name = "pods", key = null] = location.hash.split("/");
  if (VIEWS.includes(name)) view = name;
  for (const id of VIEWS) by(id).hidden = id !== view;
  for (const tab of document.querySelectorAll("nav a")) {
    if (tab.hash === `#/${view}`) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  by("search").inert = view === "sources";
  let uid = null;
  if (name === "pod" && key !== null) {
    try {
      uid = decodeURIComponent(key);
    } catch {
      // An invalid fragment.
    }
  }
  void show(uid, agent.mirrors.find((line) => line.podUID === uid), agent.version, view);
}

/** Keeps the question and the filter in the address, for a reload or a colleague. */
function remember() {
  const texts = { q: by("question").value, filter: by("filter").value };
  const given = Object.entries(texts).filter(([, text]) => text.trim());
  const query = given.length > 0 ? `?${new URLSearchParams(given)}` : location.pathname;
  history.replaceState(null, "", query + location.hash);
}

by("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  remember();
  void ask(by("question").value);
});

// The cross in the field clears it, and so the answer.
by("question").addEventListener("input", () => {
  if (by("question").value !== "") return;
  remember();
  void ask("");
});

by("filter").addEventListener("input", () => {
  filter(by("filter").value);
  remember();
});

/** Shows only what has all of these words. */
function filter(text) {
  for (const rows of [pods, mirrors, changes]) rows.filter(text);
}

addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input") || by("pod").open) return;
  const named = VIEWS[Number(event.key) - 1];
  if (named) location.hash = `#/${named}`;
  if (event.key !== "/") return;
  event.preventDefault();
  by("filter").focus();
});
const given = new URLSearchParams(location.search);
by("filter").value = given.get("filter") ?? "";
filter(by("filter").value);
void ask(given.get("q") ?? "");
route();
void agent.follow();
