//! A figure that stands on two pages is the same on both, and one that was measured is the one that is recorded.

use super::{assert_says, between, block, flowing, instructions, read, rows, table};

#[test]
fn the_memory_of_the_agent_is_the_same_on_each_page() {
    let (sizing, reference) = (read("docs/sizing.md"), read("docs/reference.md"));
    let heading = "| pods on the node | at the start | with a full history of changes |";
    let measured: Vec<_> = rows(&sizing, heading)
        .into_iter()
        .filter(|row| !row.iter().any(|cell| cell.contains("about")))
        .collect();
    assert!(measured.len() >= 4, "{measured:?}");
    let others = rows(&reference, "| pods of the API server | at the start | with changes |");
    for row in &measured {
        assert!(others.contains(row), "docs/reference.md does not have {row:?}");
    }
    let at = |pods: &str, column: usize| measured.iter().find(|row| row[0] == pods).unwrap()[column];
    // "About 25 MiB" for 110 pods.
    let start: f64 = at("110", 1).trim_end_matches(" MB").parse().unwrap();
    assert!((start * 1e6 / f64::from(1 << 20) - 25.0).abs() < 1.0, "{start} MB");
    for page in ["README.md", "docs/why.md"] {
        assert!(read(page).contains("about 25 MiB of memory"), "{page}");
    }
    let full: f64 = at("110", 2).trim_end_matches(" MB").parse().unwrap();
    let in_mebibytes = full * 1e6 / f64::from(1 << 20);
    assert!((in_mebibytes - 68.0).abs() < 1.0, "{full} MB");
    assert_says("README.md", "68 MiB with a full history");
    for page in ["README.md", "docs/why.md", "docs/sizing.md", "docs/reference.md"] {
        assert_says(page, "less than 0.1 % of a core");
    }
    let at_rest = table(&sizing, "| at rest | is | measured by |");
    let cpu = at_rest("CPU time, beside compilers and tests (a load of 4 to 20 on two cores)", 1);
    let share: f64 = between(cpu, "which is ", ' ').next().unwrap().parse().unwrap();
    assert!(share < 0.1, "{cpu}");
    assert!(read("deploy/kubernetes/base/daemonset.yaml").contains(at("110", 2)));
}

/// The guide has four of the six columns.
#[test]
fn the_guide_says_as_the_report_how_many_lookups_several_threads_make() {
    let report = read("docs/performance/README.md");
    let guide = read("docs/lookups.md");
    let of_report = rows(
        &report,
        "| threads | 1,000 pods: no writer | 1,000 updates/s | a writer at full speed | 100,000 pods: no writer | 1,000 updates/s | a writer at full speed |",
    );
    let told = rows(
        &guide,
        "| threads | 1,000 pods: no writer | 1,000 updates/s | 100,000 pods: no writer | 1,000 updates/s |",
    );
    let measured: Vec<_> =
        of_report.iter().map(|row| [0, 1, 2, 4, 5].map(|column| row[column]).to_vec()).collect();
    assert_eq!((told.len(), &told), (4, &measured));
}

/// Beside a writer, a design makes no more lookups than without one, and four threads on two cores hardly more than two. Where a
/// figure says so, something else took the cores while it was measured, and nobody may compare with it.
#[test]
fn the_readme_compares_with_no_throughput_that_was_disturbed() {
    let figures = read("docs/performance/figures.tsv");
    let throughput = |design: &str, what: &str| {
        let name = format!("contention\t100000\t{what} threads\t{design}\t");
        let rest = figures.split(&*name).nth(1)?;
        rest.split('\t').next()?.replace(',', "").parse::<f64>().ok()
    };
    let readme = read("README.md");
    let heading =
        "| 100,000 pods | lookup by UID | 2 threads | p99.9 beside a writer at full speed | update |";
    let told = rows(&readme, heading);
    assert_eq!((told.len(), told[0][0]), (5, "bare table"));
    for row in told {
        let figure = throughput(row[0], "no writer, 2").unwrap();
        let others = ["1,000 updates/s, 2", "no writer, 4"].map(|what| throughput(row[0], what));
        let is_disturbed = others.into_iter().flatten().any(|other| figure < 0.7 * other);
        assert_eq!(row[2] == "–", is_disturbed, "{row:?}: {others:?}");
        let unit = " M/s";
        let told = row[2].strip_suffix(unit).map(|told| told.parse::<f64>().unwrap());
        assert!(is_disturbed || told == Some(figure), "{row:?}: {figure}");
    }
}

/// A locked map is faster in a batch, and a parsed UID is found in less time.
#[test]
fn nothing_calls_the_bare_table_a_limit() {
    for page in
        ["README.md", "docs/performance/README.md", "docs/performance/figures.tsv", "benches/support/bare.rs"]
    {
        let text = flowing(page).to_lowercase();
        for word in ["table (the limit", "lower bound", "can be faster"] {
            assert!(!text.contains(word), "{page} says: {word}");
        }
    }
}

#[test]
fn the_guides_figures_are_those_of_the_reports() {
    let report = read("docs/performance/README.md");
    // Of which 1,000 pods and 100,000.
    let report = rows(&report, "| pods | 1,000 | 100,000 | 1,000,000 |");
    let figure = |design: &str| {
        let row = report.iter().find(|row| row[0] == design).unwrap();
        let rounded = |cell: &str| {
            let figure: f64 = cell.split(' ').next().unwrap().parse().unwrap();
            if figure < 10.0 { format!("{figure:.1}") } else { format!("{figure:.0}") }
        };
        format!("{} · {} ns", rounded(row[1]), rounded(row[2]))
    };
    let guide = read("docs/lookups.md");
    for (handle, design) in [
        ("`Reader::cached()`", "pod-index, cached"),
        ("`cached.load().pod_by_uid(&uid)`", "pod-index, cached, parsed UID"),
        ("`Reader::load()`", "pod-index, load()"),
    ] {
        let row = guide.lines().find(|line| line.starts_with('|') && line.contains(handle)).unwrap();
        assert!(row.contains(&figure(design)), "{}: {row}", figure(design));
    }

    // By each key, of 1,000 pods and of 100,000.
    let page = read("docs/performance/README.md");
    let by_key = table(&page, "| key, pods | 200 | 1,000 | 10,000 | 100,000 |");
    let nanoseconds = |key: &str| {
        [2, 4].map(|column| {
            let figure = by_key(key, column).split(" · ").next().unwrap();
            format!("{:.1}", figure.parse::<f64>().unwrap())
        })
    };
    let [few, many] = nanoseconds("IP");
    let by_ip = format!("{few} ns with 1,000 pods, {many} ns with 100,000");
    assert_says("docs/embedders.md", &format!("by IP {by_ip}"));
    assert_says("docs/embedders.md", &format!("| a lookup by IP takes | [{by_ip}]"));
    let by_ip = instructions("ip_hit");
    assert_says("docs/embedders.md", &format!("| CPU for each | {by_ip} instructions of your thread |"));
    let told = rows(&guide, "| your event carries | call | instructions | ns, at 1,000 · 100,000 pods |");
    for (call, bench, key) in [
        ("pods.load().pod_by_ip(ip)", "ip_hit", Some("IP")),
        ("pods.get(id)", "container_id_hit", Some("container ID")),
        ("pods.load().pod_by_container_id(text)", "container_text_hit", Some("container ID, text")),
        ("pods.load().pod_by_uid(&uid)", "parsed_uid_hit", None),
        ("pods.load().pod_by_uid(text)", "uid_hit", Some("UID")),
        ("pods.load().pod_by_name(namespace, name)", "name_hit", Some("name")),
        ("pods.load().pod_by_full_name(text)", "full_name_hit", None),
    ] {
        let row =
            told.iter().find(|row| row[1] == format!("`{call}`")).unwrap_or_else(|| panic!("no row {call}"));
        let measured = key.map(|key| nanoseconds(key).join(" · ")).unwrap_or_default();
        assert_eq!((row[2], row[3]), (&*instructions(bench).to_string(), &*measured), "{call}");
    }
    assert_says("docs/lookups.md", &format!("by IP it takes {} instructions", instructions("ip_get")));
    let load = instructions("uid_hit_by_load") - instructions("uid_hit");
    assert_says("docs/lookups.md", &format!("`Reader::load()` adds {load} instructions"));

    // What an update costs, with 1,000 pods and with 100,000.
    let [most, least] = [" ns with 1,000 pods, ", " ns with 100,000 pods, "].map(|pods| {
        let rest = flowing("docs/performance/README.md");
        let times = rest.split(pods).nth(1).unwrap().split(" times as long").next().unwrap();
        times.parse::<f64>().unwrap()
    });
    assert_says("README.md", &format!("An update costs {least:.0} to {most:.0} times as much"));

    // What an update costs, with 100,000 pods.
    let page = read("docs/performance/README.md");
    let updates = rows(&page, "|  | one pod | in a batch of 1,000 | replacing all pods |");
    let update = updates.iter().find(|row| row[0] == "pod-index, cached").unwrap();
    let [alone, batch] = [update[1], update[2]].map(|cell| {
        let nanoseconds = cell.split(" · ").nth(1).unwrap().replace(',', "");
        format!("{:.2} µs", nanoseconds.parse::<f64>().unwrap() / 1e3)
    });
    let sentence = format!("an update takes {alone} alone and {batch} in a batch of 1,000");
    assert_says("docs/writing.md", &sentence);

    // How long a lookup waits for a writer with a lock.
    let figures = read("docs/performance/figures.tsv");
    let longest = |what: &str| {
        let name = format!("latency\t100000\t{what}\tkubelet's maps, parking_lot RwLock\t");
        let rest = figures.split(&*name).nth(1).unwrap_or_else(|| panic!("no {name}"));
        let figure = rest.split('\t').next().unwrap();
        figure.replace(',', "").parse::<f64>().unwrap()
    };
    let sentence = format!(
        "{:.0} ms (the 99.9th percentile: {:.1} µs)",
        longest("d p100") / 1e6,
        longest("d p99.9") / 1e3
    );
    assert!(read("docs/comparison.md").contains(&sentence), "docs/comparison.md: {sentence}");

    // Which answers become right.
    let report = read("docs/performance/at-a-time.md");
    let report = rows(&report, "| | right | rightly nobody | ambiguous | unknown | confidently wrong |");
    // A system that never says that nobody had an IP has a dash there.
    let percent = |cell: &str| cell.trim_end_matches(" %").parse::<f64>().unwrap_or_default();
    let why = read("docs/why.md");
    let told = rows(&why, r#"| | right | "I am not certain" | confidently wrong |"#);
    assert!(told.len() >= 3, "{told:?}");
    for row in told {
        let system = row[0].split('\'').next().unwrap();
        let measured = report.iter().find(|row| row[0] == system).unwrap();
        let right = percent(measured[1]) + percent(measured[2]);
        let uncertain = percent(measured[3]) + percent(measured[4]);
        for (told, measured) in
            [(percent(row[1]), right), (percent(row[2]), uncertain), (percent(row[3]), percent(measured[5]))]
        {
            assert!((told - measured).abs() < 0.11, "{system}: {told} is not {measured}");
        }
    }
}

#[test]
fn the_guide_has_the_percentiles_of_single_lookups() {
    let guide = read("docs/lookups.md");
    let figures = read("docs/performance/figures.tsv");
    let percentile = |pods: &str, situation: &str, percentile: &str| {
        let name = format!("latency\t{pods}\t{situation} {percentile}\tpod-index, cached\t");
        let rest = figures.split(&*name).nth(1).unwrap_or_else(|| panic!("no {name}"));
        rest.split('\t').next().unwrap().trim_end_matches(".0").to_owned()
    };
    let told = rows(&guide, "| pods | beside it | half within | 99 % within | 99.9 % within |");
    for (row, (pods, situation)) in
        told.iter().zip([("1000", "a"), ("1000", "b"), ("100000", "a"), ("100000", "b")])
    {
        let measured = ["p50", "p99", "p99.9"].map(|of| percentile(pods, situation, of));
        assert_eq!(row[2..], measured, "{row:?}");
    }
    assert_eq!(told.len(), 4);
    let [half, most] = ["p50", "p99.9"].map(|of| percentile("100000", "b", of));
    let sentence = format!("with 100,000 pods: half within {half} ns, 99.9 % within {most} ns");
    assert_says("docs/embedders.md", &sentence);
}

#[test]
fn what_a_removed_pod_takes_is_within_the_bounds_of_its_test() {
    let test = read("tests/memory.rs");
    // In pages that are reused, and otherwise.
    let bounds = |times: bool| {
        let ranges: Vec<_> = block(&test, &format!("removed({times}, ["), "])").split(", ").collect();
        let sum = |end: usize| {
            let ends = ranges.iter().map(|range| range.split("..").nth(end).unwrap());
            ends.map(|end| end.parse::<u32>().unwrap()).sum::<u32>()
        };
        sum(0)..sum(1)
    };
    for (times, bytes, words) in
        [(false, 700, "about 700 bytes"), (true, 2_000, "about 2 kB with times (of an IP and a name)")]
    {
        assert!(bounds(times).contains(&bytes), "{words}, but {:?} is measured", bounds(times));
        for page in ["docs/lookups.md", "src/options.rs"] {
            assert_says(page, words);
        }
    }
    // Each term is a number of kB, perhaps with a factor before it.
    let page = read("docs/writing.md");
    let parts = table(&page, "| part | computed as, for each pod | 110 pods | 100,000 pods |");
    let row = "removed pods, and the times that they had: 300, and 1,000";
    let of_term = |term: &str| {
        let factors = term.trim_end_matches(" kB").split(" × ");
        factors.map(|factor| factor.parse::<f64>().unwrap()).product::<f64>()
    };
    let each: f64 = parts(row, 1).split(" + ").map(of_term).sum();
    for (column, pods) in [(2, 300.0), (3, 1_000.0)] {
        assert_eq!(parts(row, column), format!("{:.0} MB", pods * each / 1e3));
    }
}

#[test]
fn the_chapter_on_performance_has_the_counts_of_the_benches() {
    let grouped = |count: u64| match count / 1_000 {
        0 => count.to_string(),
        thousands => format!("{thousands},{:03}", count % 1_000),
    };
    for (sentence, bench) in [
        ("COUNT instructions for a lookup by UID", "uid_hit"),
        ("COUNT with a parsed UID", "parsed_uid_hit"),
        ("COUNT by IP", "ip_hit"),
        ("COUNT by a parsed container ID", "container_id_hit"),
        ("COUNT by its text", "container_text_hit"),
        ("COUNT by namespace and name", "name_hit"),
        ("COUNT for an update of a pod that has neither", "update"),
        ("COUNT for each of a batch of 64", "update_in_batches"),
        ("COUNT with an IP and two containers", "update_with_keys"),
    ] {
        assert_says("src/docs/performance.md", &sentence.replace("COUNT", &grouped(instructions(bench))));
    }
}

/// `12345` as `12,345`.
fn thousands(number: u32) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

#[test]
fn connections_and_watches_are_multiplied_rightly_by_the_number_of_nodes() {
    let why = read("docs/why.md");
    let told = table(&why, "| agents on each node | without pod-index | with pod-index |");
    let held = |nodes: u32, connections: u32, watches: u32| {
        format!("{} connections, {} watches", thousands(nodes * connections), thousands(nodes * watches))
    };
    for agents in [1, 4, 8] {
        let first = agents.to_string();
        assert_eq!(told(&first, 1), held(2000, agents, 3 * agents), "{agents} agents without pod-index");
        assert_eq!(told(&first, 2), held(2000, 2, 3), "{agents} agents with pod-index");
    }
    let told = table(&why, "| nodes | without pod-index | with pod-index | memory of all pod-index |");
    let costs = block(&why, "## What it costs", "##");
    let of_one = between(costs, "about ", ' ').next().unwrap().parse::<u32>().unwrap();
    for nodes in [5, 50] {
        let first = nodes.to_string();
        assert_eq!(told(&first, 1), held(nodes, 4, 3 * 4), "{nodes} nodes without pod-index");
        assert_eq!(told(&first, 2), held(nodes, 2, 3), "{nodes} nodes with pod-index");
        assert_eq!(told(&first, 3), format!("{} MiB", thousands(nodes * of_one)), "{nodes} nodes");
    }
    let readme = read("README.md");
    let readme = table(&readme, "| | without | with pod-index |");
    let of_four = |each: u32| thousands(2000 * 4 * each);
    let row = "connections to the API server, 2,000 nodes with 4 agents each";
    assert_eq!([readme(row, 1), readme(row, 2)], [&*of_four(1), "4,000"]);
    assert_eq!([readme("watches there", 1), readme("watches there", 2)], [&*of_four(3), "6,000"]);

    // Of `client-reviews`: a token once a minute, a right every two and a half.
    let asked = 2000 / 60 + 2000 / 150 + 1; // rounded
    assert_says("docs/sizing.md", &format!("2,000 / 60 + 2,000 / 150, or about {asked} small requests"));
}

/// `.ci/run features_alone` counts the crates.
#[test]
fn the_guide_counts_the_crates_of_a_feature_as_the_library_does() {
    let library = read("kubelet/README.md");
    let counted = rows(&library, "| feature | module | crates |");
    let guide = read("docs/embedders.md");
    let told = rows(&guide, "| your program | features of `pod-index-kubelet` | crates |");
    let mut compared = 0;
    for row in told {
        let feature = row[1].split([' ', ',']).next().unwrap();
        // The first row is about `pod-index` alone.
        let Some(of_library) = counted.iter().find(|counted| counted[0] == feature) else { continue };
        assert_eq!(row[2], of_library[2], "{feature}");
        compared += 1;
    }
    assert!(compared >= 8, "only {compared} features");
    let all = counted.iter().find(|row| row[0] == "the default").unwrap()[2];
    assert_says("docs/embedders.md", &format!("With everything, `pod-index-kubelet` brings {all} crates"));
}

/// No test can measure these, because they need a cluster. So they are on one page, and the others agree with it.
#[test]
fn what_was_measured_beside_a_cluster_is_told_alike_on_each_page() {
    let measured = read("docs/performance/agent.md");

    let traffic = table(&measured, "| agents | without pod-index | with pod-index |");
    let [one, four, eight] = ["1", "4", "8"].map(|agents| traffic(agents, 1));
    let sentence = format!(
        "one agent received {one} from the API server, four received {four}, and eight received {eight}."
    );
    assert_says("docs/why.md", &sentence);
    for agents in ["1", "4", "8"] {
        assert_says("docs/why.md", &format!("Through `pod-index` it was {}", traffic(agents, 2)));
    }

    let heading = "| | pod-index, `--serve-resources=owners,nodes,namespaces` | eight informers |";
    let owners = rows(&measured, heading);
    assert_eq!(owners, rows(&read("docs/sizing.md"), "| | pod-index | eight informers |"));
    let bytes = table(&measured, heading);
    let [ours, theirs] =
        [1, 2].map(|column| bytes("at the start: bytes", column).split(" in ").next().unwrap());
    let sentence = format!("eight informers received {theirs} at their start, and `pod-index` {ours};");
    assert_says("docs/why.md", &sentence);

    let outage = table(&measured, "| measured | figure |");
    let figure =
        |row: &str| outage(row, 1).split(" s ").next().unwrap().trim_start_matches("after ").to_owned();
    let agent = figure("the agent is up to date after an outage of 30 s");
    let informers = figure("client-go's informers, the same outage");
    assert_says(
        "docs/what-if-it-fails.md",
        &format!(
            "the agent was up to date {agent} s after the server was back; client-go's informers needed {informers} s"
        ),
    );
    let row = "after an outage of 30 s, up to date again";
    let readme = read("README.md");
    let readme = table(&readme, "| | without | with pod-index |");
    assert_eq!(readme(row, 1), format!("after {informers} s (client-go's informers)"));
    assert_eq!(readme(row, 2), format!("after {agent} s"));

    let half = outage("of these, half were found within", 1).split(" of ").next().unwrap();
    let most = outage("of these, 99 % were found within", 1).split(" of ").next().unwrap();
    let all =
        outage("containers that restarted in an outage of ten minutes, found with the kubelet's socket", 1);
    let all = all.split(" of ").next().unwrap();
    assert_says("docs/what-if-it-fails.md", &format!("and {all} containers restarted."));
    assert_says("docs/what-if-it-fails.md", &format!("half of them within {half} and 99 % within {most}"));
    assert_says("docs/why.md", &format!("it found all {all} of them, half of them within {half}"));

    let rotated = table(&measured, "| replaced | the agent follows the new one |");
    for row in ["both, and the server restarts", "the server first, the authority's file a minute later"] {
        assert_says("docs/what-if-it-fails.md", rotated(row, 1));
    }
}

/// The simulation in `kubelet/src/owners/tests.rs` counts the same.
#[test]
fn requests_for_owners_follow_from_how_often_an_owner_is_renewed() {
    let refresh = read("kubelet/src/owners/refresh.rs");
    let longest: u32 =
        block(&refresh, "const REFRESH: Duration = Duration::from_secs(", ");").parse().unwrap();
    let jitter = read("kubelet/src/backoff.rs");
    let jitter = block(&jitter, "pub fn jitter() -> f64 {", "}").trim();
    assert_eq!(jitter, "(2.0 + random()) / 3.0", "then it is no longer 2/3 to 1, and 5/6 on average");
    let minutes = format!("every {} to {} minutes", longest * 2 / 3 / 60, longest / 60);
    for row in rows(&read("docs/point-your-agents.md"), "| owner | first | again |").iter().take(2) {
        assert_eq!(row[2], minutes, "{}", row[0]);
    }
    assert_says("docs/sizing.md", &format!("reads each owner again {minutes}."));

    let sizing = read("docs/sizing.md");
    let simulated = table(&sizing, "| owners | requests of all agents |");
    let renewed_in_an_hour = |owners: u32| owners * 3600 / (longest * 5 / 6);
    let of_all = renewed_in_an_hour(2_000 * 30);
    let told = format!("{} an hour, which is {} a second", thousands(of_all), of_all / 3600);
    assert_eq!(simulated("at rest", 1), told);

    // Beside 12 renewed watches in 15 minutes.
    let [least, most] = [35, 85].map(|owners| 4 * 12 + renewed_in_an_hour(owners));
    let beside_informers = table(&sizing, "| | pod-index | eight informers |");
    assert_eq!(beside_informers("at rest, in an hour: requests", 1), format!("{least} to {most}"));
    assert_says("README.md", &format!("[{least} to {most}](docs/sizing.md#owners)"));
    assert_says("docs/performance/agent.md", &format!("are {least} to {most}; four times 14 are 56."));
}

#[test]
fn two_pages_say_alike_when_a_silent_connection_is_noticed() {
    let guide = read("docs/what-if-it-fails.md");
    let guide = table(&guide, "| the connection | is noticed |");
    let reference = read("docs/reference.md");
    let reference = table(&reference, "| event | the agent |");
    for (connection, event) in [
        ("silent: a load balancer drops its packets", "the server is gone without closing the connection"),
        (
            "kept open by a proxy that swallows the events",
            "a proxy keeps the connection open and swallows the events",
        ),
    ] {
        let noticed = guide(connection, 1);
        assert_eq!(
            reference(event, 1),
            format!("notices {noticed}, and continues over a new connection"),
            "{event}"
        );
    }
}

#[test]
fn the_simulations_figures_are_the_same_on_each_page() {
    let page = read("docs/performance/at-a-time.md");
    let wrong = table(&page, "| | right | rightly nobody | ambiguous | unknown | confidently wrong |");
    let percent = |cell: &str| cell.trim_end_matches(" %").parse::<f64>().unwrap();
    let rules = ["k8sattributes", "Pixie", "Tetragon", "Vector"].map(|agent| percent(wrong(agent, 5)));
    let least = rules.into_iter().fold(f64::MAX, f64::min);
    let most = rules.into_iter().fold(0.0, f64::max);
    let uncertain = percent(wrong("pod-index", 3)) + percent(wrong("pod-index", 4));
    let readme = read("README.md");
    let row = readme.lines().find(|line| line.contains("events attributed to the wrong pod")).unwrap();
    assert!(row.contains(&format!("| {least:.0} % to {most:.0} % by the rules of four agents |")), "{row}");
    assert!(row.contains(&format!("| 0, and {uncertain:.1} % \"not certain\" |")), "{row}");
    let first =
        page.split("Of the ambiguous answers of pod-index, ").nth(1).unwrap().split('%').next().unwrap();
    assert_says("docs/why.md", &format!("In {:.0} % of the uncertain answers", percent(first.trim())));
}

#[test]
fn requests_and_limits_follow_from_what_was_measured() {
    let sizing = read("docs/sizing.md");
    let daemon_set = read("deploy/kubernetes/base/daemonset.yaml");
    let told = rows(&sizing, "| | the DaemonSet has | it is enough for |");
    for row in told {
        let resource = format!("{}s:", row[0]);
        let line = daemon_set.lines().find(|line| line.trim_start().starts_with(&resource)).unwrap();
        let memory = format!("memory: {}}}", row[1].replace(" MiB", "Mi"));
        assert!(line.contains(&memory), "{line}: {memory}");
    }
    // The example: 1,500 pods, 10,000 Namespaces.
    let memory = table(&sizing, "| pods on the node | at the start | with a full history of changes |");
    let of_1000: u32 = memory("1,000", 2).trim_end_matches(" MB").parse().unwrap();
    let request = of_1000 + 500 * 40 / 1000 + 25;
    assert_says("docs/sizing.md", &format!("{of_1000} MB + 500 × 40 kB + 25 MB, which is {request} MB"));

    let protobuf = read("docs/performance/protobuf.md");
    let list = table(&protobuf, "| | JSON | protobuf | |");
    let [json, binary] = [1, 2].map(|column| list("API server: CPU for a list of 110 pods", column));
    let megabytes = |column| {
        let bytes: f64 = list("bytes of a list of 110 pods", column).replace(',', "").parse().unwrap();
        format!("{:.1} MB", bytes / 1e6)
    };
    assert_says(
        "docs/sizing.md",
        &format!("{binary} of CPU and {}, in JSON {json} and {}", megabytes(2), megabytes(1)),
    );
}
