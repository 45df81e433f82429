//! Sources → merge → join → writer.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use pod_index::{Moment, Writer};
use pod_index_kubelet::records::{Change, Join, Record};
use pod_index_kubelet::sources::static_pods::OwnNode;
use pod_index_kubelet::sources::{Merge, Merged, Source, SourceUpdate};

use super::coverage::Reported;

/// What the writer hears.
pub(crate) enum News {
    Pods(SourceUpdate<Pod>),
    Namespaces(SourceUpdate<Namespace>),
    /// `None`: it could not be read.
    OwnNode(Option<OwnNode>),
}

/// All that a write goes through.
pub(crate) struct Index {
    pub(crate) merge: Merge,
    pub(crate) join: Join,
    pub(crate) writer: Writer<Record>,
    pub(crate) reported: Reported,
}

impl Index {
    /// Writes what follows from the news.
    pub(crate) fn hear(&mut self, news: News) {
        let changes = match news {
            News::Pods(update) => pods(self.merge.update(Source::Api, update)),
            News::OwnNode(node) => pods(self.merge.own_node(node)),
            News::Namespaces(update) => vec![Change::Namespaces(Change::metadata(&update))],
        };
        self.write(Moment::now(), changes);
    }

    /// Once a second, when no news waits: lets later times become certain, and forgets and frees what is due.
    pub(crate) fn look(&mut self) {
        let settled = self.reported.settle(&mut self.merge);
        let moment = self.reported.look(self.merge.all_sources_seen());
        self.write(moment, settled.into_iter().flat_map(pods).collect());
        self.writer.reclaim();
    }

    /// One publication: a reader sees all of the changes or none.
    fn write(&mut self, moment: Moment, changes: Vec<Change>) {
        let records = self.join.apply(changes);
        for refused in self.writer.apply_at(moment, records).refused {
            eprintln!("skipped: {}", refused.error);
        }
    }
}

fn pods(merged: Merged) -> Vec<Change> {
    merged.problems.iter().for_each(|problem| eprintln!("{problem}"));
    merged.into_operations().map(Change::Pod).collect()
}
