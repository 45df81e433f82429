//! Settings that do nothing, because another one is missing. The agent starts with them; `doctor` reports them.

use super::args::Shared;

/// Each setting without effect, and the setting that it needs.
pub(super) fn idle(settings: &Shared) -> Vec<String> {
    let filled = |text: Option<&String>| text.is_some_and(|text| !text.is_empty());
    let url = (filled(settings.manifest_url.as_ref()), "a URL (--manifest-url)");
    let kubelet = (filled(settings.kubelet.as_ref()), "a kubelet (--kubelet)");
    let manifests = (settings.pod_manifest_path.is_some(), "manifests (--pod-manifest-path)");
    let api = settings.kubeconfig.is_some() || settings.api_server;
    let api = (api, "an API server (--kubeconfig or --api-server)");
    let headers = settings.manifest_url_header.as_ref().is_some_and(|headers| !headers.is_empty());
    let settings = [
        (headers, "staticPodURLHeader", url),
        (settings.manifest_url_ca.is_some(), "manifestUrlCa", url),
        (settings.http_check_frequency.is_some(), "httpCheckFrequency", url),
        (settings.file_check_frequency.is_some(), "fileCheckFrequency", manifests),
        (settings.kubelet_token_file.is_some(), "kubeletTokenFile", kubelet),
        (settings.kubelet_ca.is_some(), "kubeletCa", kubelet),
        (settings.kubelet_insecure_skip_tls_verify, "kubeletInsecureSkipTlsVerify", kubelet),
        (settings.kubelet_check_frequency.is_some(), "kubeletCheckFrequency", kubelet),
        (settings.all_nodes, "allNodes", api),
        (settings.keep_managed_fields, "keepManagedFields", api),
    ];
    let idle = settings.into_iter().filter(|(given, _, (is_there, _))| *given && !is_there);
    idle.map(|(_, name, (_, needed))| format!("{name} does nothing without {needed}")).collect()
}
