//! The open connections of a listener, and which one is closed if there are too many.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::AbortHandle;

use super::activity::{Activity, State};
use crate::api::client::{Peer, PeerAddress};

/// An open connection.
pub(super) struct Connection {
    pub(super) task: AbortHandle,
    pub(super) peer: Arc<Peer>,
    pub(super) activity: Arc<Activity>,
}

/// The open connections, the oldest first.
#[derive(Default)]
pub(super) struct Connections(Vec<Connection>);

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add(&mut self, connection: Connection) {
        self.0.push(connection);
    }

    /// If there are `most` connections or more, closes one. Watches do not count: they are long and have their own limits.
    ///
    /// Those without a TLS handshake go first, because nobody knows whose they are. Then the client with the most connections loses
    /// one, so that no client can cut off another. Of its connections, and of those of clients that have as many:
    ///
    /// | closed first | because |
    /// |---|---|
    /// | idle, the one that is idle for the longest time | nobody waits for anything |
    /// | with an incomplete head, the oldest | requests are short, so it is likely hostile |
    /// | being served, the oldest | it has had the most time |
    pub(super) fn make_room(&mut self, most: usize) {
        self.0.retain(|connection| !connection.task.is_finished());
        let is_short = |connection: &&Connection| !connection.peer.is_watching.load(Ordering::Relaxed);
        if self.0.iter().filter(is_short).count() < most {
            return;
        }
        let mut of_client = HashMap::<PeerAddress<'_>, usize>::new();
        for connection in self.0.iter().filter(is_short) {
            *of_client.entry(connection.peer.address()).or_default() += 1;
        }
        let rank = |connection: &Connection| {
            let state = connection.activity.state();
            let of_its_client = of_client[&connection.peer.address()];
            (state != State::Handshake, Reverse(of_its_client), state, connection.activity.since())
        };
        let short = self.0.iter().enumerate().filter(|(_, connection)| is_short(connection));
        let first = short.min_by_key(|(_, connection)| rank(connection)).map(|(at, _)| at);
        if let Some(first) = first {
            self.0.remove(first).task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::task::{JoinHandle, yield_now};
    use tokio::time::advance;

    use super::*;
    use crate::api::client::Clients;

    /// Open connections, each with a task that does not end by itself.
    struct Opened {
        clients: Clients,
        connections: Connections,
        tasks: Vec<JoinHandle<()>>,
    }

    impl Opened {
        fn new() -> Self {
            Self { clients: Clients::new(), connections: Connections::default(), tasks: Vec::new() }
        }

        /// A connection of this client comes into this state, a second after the one before.
        async fn open(&mut self, client: &str, state: State) {
            let task = tokio::spawn(pending::<()>());
            let activity = Arc::new(Activity::new());
            activity.set(state);
            let peer = self.clients.peer(client);
            self.connections.add(Connection { task: task.abort_handle(), peer, activity });
            self.tasks.push(task);
            advance(Duration::from_secs(1)).await;
        }
    }

    /// Each connection in the order in which it was opened: its client, its state. A number: the time at which it came into the
    /// state.
    #[tokio::test(start_paused = true)]
    async fn connections_are_closed_in_the_order_of_their_use() {
        let mut opened = Opened::new();
        let states = [
            ("a", State::Serving),
            ("b", State::Idle),
            ("a", State::Head),
            ("b", State::Serving),
            ("b", State::Idle),
            ("b", State::Serving),
            ("c", State::Handshake),
            ("b", State::Serving),
        ];
        for (client, state) in states {
            opened.open(client, state).await;
        }
        let Opened { clients, mut connections, tasks } = opened;
        // The first idle one has served a request since, so the other is idle for a longer time.
        connections.0[1].activity.set(State::Idle);
        let watching = clients.peer("a");
        watching.is_watching.store(true, Ordering::Relaxed);
        let watch = tokio::spawn(pending::<()>());
        connections.add(Connection {
            task: watch.abort_handle(),
            peer: watching,
            activity: Arc::new(Activity::new()),
        });
        let mut closed = Vec::new();
        for most in (1..=states.len()).rev() {
            connections.make_room(most);
            yield_now().await;
            let is_new = |at: &usize| tasks[*at].is_finished() && !closed.contains(at);
            let new: Vec<_> = (0..states.len()).filter(is_new).collect();
            closed.extend(new);
        }
        assert_eq!(closed, [6, 4, 1, 3, 2, 5, 0, 7], "of two clients with one connection each, the oldest");
        assert!(!watch.is_finished(), "a watch is not closed");
    }

    /// A client that connects again and again while its other connections are served.
    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_client_closes_no_connection_of_another() {
        let mut opened = Opened::new();
        let victim = [("victim", State::Idle), ("victim", State::Head)];
        let served = [("flood", State::Serving); 6];
        let flood = [("flood", State::Head); 20];
        for (client, state) in victim.into_iter().chain(served).chain(flood) {
            opened.connections.make_room(8);
            opened.open(client, state).await;
        }
        assert_eq!(opened.connections.len(), 8);
        assert!(!opened.tasks[0].is_finished() && !opened.tasks[1].is_finished());
    }
}
