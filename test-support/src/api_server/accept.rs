//! The `Accept` header. This server speaks JSON, and of pods protobuf (see `protobuf`); a real one also YAML and tables.

use super::answer::Refusal;

/// Whether the client wants metadata alone. A header of which nothing can be served is 406.
pub(super) fn metadata_only(header: &str) -> Result<bool, Refusal> {
    if header.is_empty() {
        return Ok(false);
    }
    let mut clauses: Vec<_> = header.split(',').map(Clause::parse).collect();
    clauses
        .sort_by(|left, right| right.weight.total_cmp(&left.weight).then(right.specific.cmp(&left.specific)));
    clauses.iter().find_map(Clause::served).ok_or_else(|| {
        let accepted = "only the following media types are accepted: application/json";
        Refusal::new(406, "NotAcceptable", accepted)
    })
}

struct Clause<'h> {
    media: &'h str,
    convert: &'h str,
    weight: f32,
    specific: usize,
}

impl<'h> Clause<'h> {
    fn parse(clause: &'h str) -> Self {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let mut found =
            Self { media, convert: "", weight: 1.0, specific: 2 - media.matches('*').count().min(2) };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "as" => found.convert = value,
                "q" => found.weight = value.parse().unwrap_or(1.0),
                _ => {}
            }
        }
        found
    }

    /// `None` if the clause cannot be served.
    fn served(&self) -> Option<bool> {
        let is_json = ["application/json", "application/*", "*/*"].contains(&self.media);
        match self.convert {
            "" if is_json => Some(false),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if is_json => Some(true),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_clause_that_can_be_served_is() {
        let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        for whole in [
            "",
            "*/*",
            "application/json",
            "application/vnd.kubernetes.protobuf,application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            &format!("{partial};q=0.5,application/json"),
        ] {
            assert!(!metadata_only(whole).unwrap(), "{whole}");
        }
        assert!(metadata_only(partial).unwrap());
        assert!(metadata_only(&format!("*/*,{partial}")).unwrap(), "the specific one comes first");
        for none in
            ["text/html", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml", "image/*"]
        {
            assert_eq!(metadata_only(none).unwrap_err().code, 406, "{none}");
        }
    }
}
