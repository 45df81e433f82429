//! What clients are told while others attack, while the API server is away, and for each combination of the settings. The
//! clock is paused: minutes pass in an instant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode, header};
use axum::routing::get;
use axum::{Extension, Router, middleware};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::{advance, sleep};
use tower::{ServiceExt, service_fn};

use super::reviews::OUTAGE;
use super::*;
use crate::api::client::Named;

/// An API server that knows tokens and rights.
#[derive(Default)]
struct State {
    /// The user of each token, and its groups.
    users: BTreeMap<String, (String, Vec<String>)>,
    /// The users who may do everything.
    may: BTreeSet<String>,
    is_silent: bool,
    tokens_reviewed: usize,
    rights_reviewed: Vec<Value>,
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

impl Server {
    fn know(&self, token: &str, user: &str, groups: &[&str]) {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self.0.lock().unwrap().users.insert(token.to_owned(), (user.to_owned(), groups));
    }

    fn forget(&self, token: &str) {
        self.0.lock().unwrap().users.remove(token);
    }

    fn silence(&self, is_silent: bool) {
        self.0.lock().unwrap().is_silent = is_silent;
    }

    fn tokens_reviewed(&self) -> usize {
        self.0.lock().unwrap().tokens_reviewed
    }

    fn rights_reviewed(&self) -> usize {
        self.0.lock().unwrap().rights_reviewed.len()
    }

    async fn answer(self, request: Request<Body>) -> Response<Body> {
        let is_token = request.uri().path().ends_with("tokenreviews");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        // Time for others to ask the same.
        sleep(Duration::from_millis(20)).await;
        if self.0.lock().unwrap().is_silent {
            std::future::pending::<()>().await;
        }
        let mut state = self.0.lock().unwrap();
        if is_token {
            state.tokens_reviewed += 1;
            let user = state.users.get(review["spec"]["token"].as_str().unwrap());
            review["status"] = match user {
                Some((name, groups)) => {
                    json!({ "authenticated": true, "user": { "username": name, "groups": groups } })
                }
                None => json!({ "user": {}, "error": "[invalid bearer token]" }),
            };
        } else {
            state.rights_reviewed.push(review["spec"].clone());
            let allowed = review["spec"]["user"].as_str().is_some_and(|user| state.may.contains(user));
            review["status"] = json!({ "allowed": allowed });
        }
        Response::builder().status(201).body(Body::from(review.to_string().into_bytes())).unwrap()
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
        });
        Client::new(service, "default")
    }

    fn access(&self, settings: &AccessRules) -> Arc<Access> {
        let decisions = Decisions::register(&mut Registry::default());
        Access::new(settings, Some(&self.client()), "node-1", decisions).unwrap()
    }
}

fn with_tokens(rights: bool) -> AccessRules {
    AccessRules { certificates: true, tokens: true, rights, ..AccessRules::default() }
}

fn request(token: Option<&str>) -> Parts {
    let mut request = Request::get("/pods");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request.body(()).unwrap().into_parts().0
}

/// The decision on a client with this token.
async fn decide(access: &Access, address: &str, token: &str) -> Decision {
    let request = request(Some(token));
    access.decide(address, None, &request, &rights_for(&request)).await.decision
}

const ALLOWED: [Decision; 2] = [Decision::Allowed, Decision::AllowedBefore];

/// Six clients, whose tokens were accepted before, ask every five seconds for ten minutes. Meanwhile each of these addresses
/// sends 17 invented tokens in ten seconds. Returns the decisions on the clients.
async fn under_attack(
    server: &Server,
    access: &Arc<Access>,
    addresses: &[&str],
) -> BTreeMap<&'static str, usize> {
    let mut decisions = BTreeMap::new();
    let tokens: Vec<_> = (0..6).map(|number| format!("of-{number}")).collect();
    for token in &tokens {
        server.know(token, token, &[]);
        assert_eq!(decide(access, "loopback", token).await, Decision::Allowed);
    }
    let mut invented = 0;
    for _ in 0..120 {
        let mut attack = Vec::new();
        for address in addresses {
            for _ in 0..=17 / 2 {
                invented += 1;
                attack.push((address, format!("invented-{invented}")));
            }
        }
        let attacked = join_all(attack.iter().map(|(address, token)| decide(access, address, token)));
        for decision in attacked.await {
            assert!(!ALLOWED.contains(&decision), "{decision:?}");
        }
        for token in &tokens {
            *decisions.entry(decide(access, "loopback", token).await.label()).or_default() += 1;
        }
        advance(Duration::from_secs(5)).await;
    }
    decisions
}

#[tokio::test(start_paused = true)]
async fn invented_tokens_of_the_same_address_refuse_no_client_with_an_accepted_one() {
    let server = Server::default();
    let access = server.access(&with_tokens(false));
    assert_eq!(under_attack(&server, &access, &["loopback"]).await, BTreeMap::from([("allowed", 720)]));
}

#[tokio::test(start_paused = true)]
async fn invented_tokens_of_five_other_addresses_refuse_no_client_with_an_accepted_one() {
    let server = Server::default();
    let access = server.access(&with_tokens(false));
    let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
    assert_eq!(under_attack(&server, &access, &addresses).await, BTreeMap::from([("allowed", 720)]));
}

/// From each of these addresses come six invented tokens a second, each once, or once more five seconds later. Meanwhile, every
/// five seconds a client comes to the address `loopback` with a valid token that nobody has sent before, and comes back every
/// five seconds until it is served. Returns after how many requests the unluckiest one was.
async fn new_tokens_under_attack(addresses: &[&str], come_back: bool) -> usize {
    const ROUNDS: usize = 60;
    let server = Server::default();
    let access = server.access(&with_tokens(false));
    let mut invented = 0;
    let mut last = Vec::new();
    let mut waiting = Vec::<(String, usize)>::new();
    let mut most = 0;
    for round in 0..ROUNDS {
        let mut attack = std::mem::take(&mut last);
        if !come_back {
            attack.clear();
        }
        for address in addresses {
            for _ in 0..30 {
                invented += 1;
                last.push((*address, format!("invented-{invented}")));
            }
        }
        attack.extend(last.iter().cloned());
        for decision in join_all(attack.iter().map(|(address, token)| decide(&access, address, token))).await
        {
            assert!([Decision::Unauthorized, Decision::TooManyTokens].contains(&decision), "{decision:?}");
        }
        if round < ROUNDS - 20 {
            let token = format!("of-{round}");
            server.know(&token, &token, &[]);
            waiting.push((token, 0));
        }
        let mut still = Vec::new();
        for (token, requests) in waiting {
            match decide(&access, "loopback", &token).await {
                Decision::Allowed => most = most.max(requests + 1),
                refused => {
                    assert_eq!(refused, Decision::TooManyTokens);
                    still.push((token, requests + 1));
                }
            }
        }
        waiting = still;
        advance(Duration::from_secs(5)).await;
    }
    assert_eq!(waiting, [], "never served");
    // 50 first and 25 returning ones every ten seconds, and those of the clients.
    let reviewed = server.tokens_reviewed();
    assert!(reviewed <= ROUNDS / 2 * 75 + ROUNDS, "{reviewed} reviews");
    most
}

#[tokio::test(start_paused = true)]
async fn a_new_valid_token_is_accepted_at_its_second_request_while_its_address_invents_others() {
    let elsewhere = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
    for addresses in [&["loopback"][..], &[&["loopback"][..], &elsewhere].concat()] {
        assert_eq!(new_tokens_under_attack(addresses, false).await, 2, "{addresses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_valid_token_is_accepted_at_once_while_other_addresses_invent_others() {
    let elsewhere = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
    for come_back in [false, true] {
        assert_eq!(new_tokens_under_attack(&elsewhere, come_back).await, 1, "{come_back}");
    }
}

/// Whoever also sends each invented token again competes with it, and cannot keep it away.
#[tokio::test(start_paused = true)]
async fn a_new_valid_token_is_accepted_within_a_minute_while_invented_ones_come_back() {
    for addresses in [&["loopback"][..], &["loopback", "10.0.0.1", "10.0.0.2"]] {
        let requests = new_tokens_under_attack(addresses, true).await;
        println!("{addresses:?}: after {requests} requests");
        assert!(requests <= 12, "{addresses:?}: {requests}");
    }
}

/// However many tokens come back from other addresses, and although they come first whenever reviews are left.
#[tokio::test(start_paused = true)]
async fn thousands_of_invented_tokens_that_keep_coming_back_delay_no_client_of_another_address() {
    let server = Server::default();
    let access = server.access(&with_tokens(false));
    for round in 0..4 {
        let token = format!("of-{round}");
        server.know(&token, &token, &[]);
        let mut requests = 0;
        loop {
            // Together they spend the limit of all new tokens, and more come back than are remembered.
            for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"] {
                for number in 0..400 {
                    decide(&access, address, &format!("invented-{address}-{number}")).await;
                }
            }
            requests += 1;
            if decide(&access, "loopback", &token).await == Decision::Allowed {
                break;
            }
            // It has a place in the first period that begins after it came back.
            assert!(requests < 4, "{token} after {requests} requests");
            advance(Duration::from_secs(5)).await;
        }
        println!("{token}: after {requests} requests");
    }
}

/// Known clients are served for an hour, whether they ask all the time or for the first time in the outage. Others get 503.
#[tokio::test(start_paused = true)]
async fn while_the_api_server_is_silent_known_clients_are_served_and_the_others_told_so() {
    let server = Server::default();
    server.0.lock().unwrap().may.extend(["busy".to_owned(), "idle".to_owned()]);
    let access = server.access(&with_tokens(true));
    for user in ["busy", "idle", "without-a-right"] {
        server.know(&format!("of-{user}"), user, &[]);
        let is_allowed = decide(&access, "loopback", &format!("of-{user}")).await == Decision::Allowed;
        assert_eq!(is_allowed, user != "without-a-right");
    }
    server.know("of-late", "busy", &[]);
    server.silence(true);
    let began = tokio::time::Instant::now();
    let mut longest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(600) {
        let asked = tokio::time::Instant::now();
        let decision = decide(&access, "loopback", "of-busy").await;
        assert!(ALLOWED.contains(&decision), "{decision:?} after {:?}", began.elapsed());
        longest = longest.max(asked.elapsed());
        sleep(Duration::from_secs(1)).await;
    }
    assert!(longest < Duration::from_secs(3), "it waited {longest:?}");
    assert_eq!(decide(&access, "loopback", "of-busy").await, Decision::AllowedBefore);
    assert_eq!(decide(&access, "loopback", "of-idle").await, Decision::AllowedBefore);
    for token in ["of-late", "invented", "of-without-a-right"] {
        assert_eq!(decide(&access, "loopback", token).await, Decision::Unavailable, "{token}");
    }
    // One question in five seconds waits for the server.
    decide(&access, "x", "new-0").await;
    let asked = tokio::time::Instant::now();
    for number in 1..4 {
        assert_eq!(decide(&access, "x", &format!("new-{number}")).await, Decision::Unavailable);
    }
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    // Also from an address that has sent too many.
    for number in 0..100 {
        let decision = decide(&access, "10.0.0.1", &format!("invented-{number}")).await;
        assert!([Decision::Unavailable, Decision::TooManyTokens].contains(&decision), "{decision:?}");
    }
    assert_eq!(decide(&access, "10.0.0.1", "of-busy").await, Decision::AllowedBefore);
    sleep(OUTAGE).await;
    assert_eq!(decide(&access, "loopback", "of-busy").await, Decision::Unavailable);

    server.silence(false);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(decide(&access, "loopback", "of-busy").await, Decision::Allowed);
    assert_eq!(decide(&access, "loopback", "of-late").await, Decision::Allowed);
    assert_eq!(decide(&access, "loopback", "invented").await, Decision::Unauthorized);
}

/// The metric tells the operator of it, also if nobody asks for rights.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_accepted_by_an_old_review_alone_is_said_to_be() {
    let server = Server::default();
    server.know("of-a", "a", &[]);
    let access = server.access(&with_tokens(false));
    assert_eq!(decide(&access, "x", "of-a").await, Decision::Allowed);
    server.silence(true);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(decide(&access, "x", "of-a").await, Decision::AllowedBefore);
}

#[tokio::test(start_paused = true)]
async fn many_connections_with_one_token_cause_one_review() {
    let server = Server::default();
    server.know("of-prometheus", "prometheus", &[]);
    server.0.lock().unwrap().may.insert("prometheus".to_owned());
    let access = server.access(&with_tokens(true));
    // New; renewed ahead of time; expired.
    for (pause, reviews, rights) in [(0, 1, 1), (65, 2, 1), (400, 3, 2)] {
        sleep(Duration::from_secs(pause)).await;
        let asked = tokio::time::Instant::now();
        let decisions = join_all((0..16).map(|_| decide(&access, "loopback", "of-prometheus"))).await;
        assert_eq!(decisions, [Decision::Allowed; 16]);
        assert_eq!(asked.elapsed().is_zero(), pause == 65, "nobody waits for what is renewed ahead of time");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(
            (server.tokens_reviewed(), server.rights_reviewed()),
            (reviews, rights),
            "after {pause} s"
        );
    }
    let decisions = join_all((0..16).map(|_| decide(&access, "10.0.0.1", "invented"))).await;
    assert_eq!(decisions, [Decision::Unauthorized; 16]);
    assert_eq!(server.tokens_reviewed(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_spends_its_limit_is_told_so_and_new_valid_tokens_elsewhere_are_accepted() {
    let server = Server::default();
    let access = server.access(&with_tokens(false));
    let mut decisions = Vec::new();
    for number in 0..12 {
        decisions.push(decide(&access, "greedy", &format!("invented-{number}")).await);
    }
    assert_eq!(decisions, [[Decision::Unauthorized; 10].as_slice(), &[Decision::TooManyTokens; 2]].concat());
    server.know("of-late", "late", &[]);
    assert_eq!(decide(&access, "other", "of-late").await, Decision::Allowed);
    assert_eq!(decide(&access, "greedy", "of-late").await, Decision::Allowed, "it is known by now");
    // Valid tokens are not limited.
    for number in 0..100 {
        let token = format!("rotated-{number}");
        server.know(&token, "prometheus", &[]);
        assert_eq!(decide(&access, "10.0.0.9", &token).await, Decision::Allowed, "{number}");
    }
    advance(Duration::from_secs(10)).await;
    assert_eq!(decide(&access, "greedy", "invented-12").await, Decision::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn a_review_expires() {
    let server = Server::default();
    server.know("of-a", "a", &[]);
    let access = server.access(&with_tokens(true));
    assert_eq!(decide(&access, "x", "of-a").await, Decision::Forbidden);
    server.0.lock().unwrap().may.insert("a".to_owned());
    sleep(Duration::from_secs(29)).await;
    assert_eq!(decide(&access, "x", "of-a").await, Decision::Forbidden);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(decide(&access, "x", "of-a").await, Decision::Allowed);

    // A revoked token, of a client that asks all the time, and of one that comes back.
    for asks in [true, false] {
        server.know("of-a", "a", &[]);
        sleep(Duration::from_secs(300)).await;
        assert_eq!(decide(&access, "x", "of-a").await, Decision::Allowed);
        server.forget("of-a");
        for _ in 0..12 {
            sleep(Duration::from_secs(10)).await;
            if asks {
                decide(&access, "x", "of-a").await;
            }
        }
        assert_eq!(decide(&access, "x", "of-a").await, Decision::Unauthorized, "{asks}");
    }
    // A rejected token that is valid later.
    server.know("of-a", "a", &[]);
    assert_eq!(decide(&access, "x", "of-a").await, Decision::Unauthorized);
    sleep(Duration::from_secs(121)).await;
    assert_eq!(decide(&access, "x", "of-a").await, Decision::Allowed);
}

/// The group of authenticated clients counts, for the API server and for the allowed groups.
#[tokio::test(start_paused = true)]
async fn reviews_of_rights_say_that_the_client_is_authenticated() {
    let server = Server::default();
    server.know("of-a", "a", &["g"]);
    let access = server.access(&with_tokens(true));
    decide(&access, "x", "of-a").await;
    assert_eq!(server.0.lock().unwrap().rights_reviewed[0]["groups"], json!(["g", "system:authenticated"]));
}

/// The settings with these words.
fn settings_of(words: &str, certificates: bool) -> AccessRules {
    let has = |word: &str| words.split(' ').any(|setting| setting == word);
    let one = |is_given: bool, value: &str| is_given.then(|| value.to_owned()).into_iter().collect();
    AccessRules {
        certificates,
        allowed: AllowedClients { names: one(has("names"), "named"), groups: one(has("groups"), "grouped") },
        tokens: has("tokens"),
        rights: has("rights"),
    }
}

/// The decision on this client, as a letter: allowed, unauthorized, forbidden.
async fn letter(access: &Access, certified: Option<Arc<Identity>>, token: Option<&str>) -> char {
    let request = request(token);
    let needed = rights_for(&request);
    let decision = access.decide("x", certified.as_ref(), &request, &needed).await.decision;
    match refusal(decision, None, &needed).status() {
        _ if decision == Decision::Allowed => 'A',
        StatusCode::UNAUTHORIZED => 'U',
        StatusCode::FORBIDDEN => 'F',
        _ => '?',
    }
}

/// `A`: allowed, `U`: 401, `F`: 403. The columns: no credentials and an invented token; certificates of an allowed name, an
/// allowed group, a client with the right, another one; tokens of the same four.
#[tokio::test(start_paused = true)]
async fn every_combination_of_the_settings_decides_as_this_table_says() {
    const TABLE: [(&str, &str); 16] = [
        ("", "UU AAAA UUUU"),
        ("names", "UU AFFF UUUU"),
        ("groups", "UU FAFF UUUU"),
        ("names groups", "UU AAFF UUUU"),
        ("rights", "UU FFAF UUUU"),
        ("names rights", "UU AFAF UUUU"),
        ("groups rights", "UU FAAF UUUU"),
        ("names groups rights", "UU AAAF UUUU"),
        ("tokens", "UU AAAA AAAA"),
        ("tokens names", "UU AFFF AFFF"),
        ("tokens groups", "UU FAFF FAFF"),
        ("tokens names groups", "UU AAFF AAFF"),
        ("tokens rights", "UU FFAF FFAF"),
        ("tokens names rights", "UU AFAF AFAF"),
        ("tokens groups rights", "UU FAAF FAAF"),
        ("tokens names groups rights", "UU AAAF AAAF"),
    ];
    const CLIENTS: [(&str, &str); 4] = [("named", "x"), ("y", "grouped"), ("righted", "x"), ("other", "x")];
    let server = Server::default();
    server.0.lock().unwrap().may.insert("righted".to_owned());
    for (name, group) in CLIENTS {
        server.know(&format!("of-{name}"), name, &[group]);
    }
    for (settings, expected) in TABLE {
        for certificates in [true, false] {
            let settings = settings_of(settings, certificates);
            // The agent does not start with rules for clients that cannot identify themselves.
            if !certificates && !settings.tokens {
                continue;
            }
            let access = server.access(&settings);
            let mut decided = Vec::new();
            let mut add = async |certified: Option<Identity>, token: Option<&str>| {
                decided.push(letter(&access, certified.map(Arc::new), token).await);
            };
            add(None, None).await;
            add(None, Some("invented")).await;
            for (name, group) in CLIENTS {
                let groups = vec![group.to_owned()];
                add(Some(Identity { name: name.to_owned(), groups, ..Identity::default() }), None).await;
            }
            for (name, _) in CLIENTS {
                add(None, Some(&format!("of-{name}"))).await;
            }
            let decided: String = decided.into_iter().collect();
            assert_eq!(decided, expected.replace(' ', ""), "{settings:?}");
        }
    }
}

/// What is behind it knows the client by its name, whose limits count.
#[tokio::test(start_paused = true)]
async fn the_middleware_passes_the_name_of_a_client_on_and_counts_every_decision() {
    let server = Server::default();
    server.know("of-a", "a", &[]);
    let mut registry = Registry::default();
    let decisions = Decisions::register(&mut registry);
    let access = Access::new(&with_tokens(false), Some(&server.client()), "node-1", decisions).unwrap();
    let named = |Extension(Named(name)): Extension<Named>| async move { name.to_string() };
    let router =
        Router::new().route("/pods", get(named)).layer(middleware::from_fn_with_state(access, guarded));
    for (token, status) in [(None, 401), (Some("of-a"), 200), (Some("of-a"), 200)] {
        let request = Request::from_parts(request(token), axum::body::Body::empty());
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status != 200 || body == "a", "{body:?}");
    }
    let mut measured = String::new();
    encode(&mut measured, &registry).unwrap();
    for line in [r#"access_decisions_total{decision="allowed"} 2"#, r#"{decision="unauthorized"} 1"#] {
        assert!(measured.contains(line), "no {line} in {measured}");
    }
}

/// A client with a certificate is who the certificate says, whatever its token.
#[tokio::test(start_paused = true)]
async fn a_certificate_counts_before_a_token() {
    let server = Server::default();
    server.know("of-named", "named", &[]);
    let access = server.access(&with_tokens(false));
    let named = AllowedClients { names: BTreeSet::from(["named".to_owned()]), ..AllowedClients::default() };
    let _stored = access.allowed().set(named);
    let certified = Arc::new(Identity { name: "other".to_owned(), ..Identity::default() });
    let request = request(Some("of-named"));
    let needed = rights_for(&request);
    assert_eq!(access.decide("x", Some(&certified), &request, &needed).await.decision, Decision::Forbidden);
    assert_eq!(access.decide("x", None, &request, &needed).await.decision, Decision::Allowed);
}

#[test]
fn without_any_setting_clients_need_not_identify_themselves() {
    let decisions = Decisions::register(&mut Registry::default());
    assert!(Access::new(&AccessRules::default(), None, "node-1", decisions).is_none());
    let decisions = Decisions::register(&mut Registry::default());
    let certificates = AccessRules { certificates: true, ..AccessRules::default() };
    assert!(Access::new(&certificates, None, "node-1", decisions).is_some());
}
