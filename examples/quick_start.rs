//! The index in a few lines, without a cluster: `cargo run --example quick_start`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut writer, reader) = pod_index::new();
    let etcd: k8s_openapi::api::core::v1::Pod = serde_json::from_str(
        r#"{"metadata": {"name": "etcd-node-1", "namespace": "kube-system", "uid": "c0368",
            "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "c0368"}}}"#,
    )?;
    let mut mirror = etcd.clone();
    mirror.metadata.uid = Some("7f3e1".into());
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".into(), "c0368".into())].into());

    writer.upsert_pod(etcd)?;
    writer.upsert_pod(mirror)?;
    println!("the API server's 7f3e1 is, on the node, {}", reader.load().translate_pod_uid("7f3e1"));
    Ok(())
}
