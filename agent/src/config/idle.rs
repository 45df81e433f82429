//! Settings that do nothing, because another one is missing. The agent starts with them; `doctor` reports them.

use super::args::RunArgs;
use super::file::ConfigFile;

/// Each setting without effect, and the setting that it needs.
pub(super) fn idle(args: &RunArgs, config: &ConfigFile) -> Vec<String> {
    let has = |given: bool, configured: bool| given || configured;
    let filled = |text: Option<&String>| text.is_some_and(|text| !text.is_empty());
    let url = has(filled(args.manifest_url.as_ref()), filled(config.static_pod_url.as_ref()));
    let kubelet = has(filled(args.kubelet.as_ref()), filled(config.kubelet.as_ref()));
    let file = has(args.pod_manifest_path.is_some(), config.static_pod_path.is_some());
    let api =
        args.kubeconfig.is_some() || config.kubeconfig.is_some() || args.api_server || config.api_server;
    let headers = !(args.manifest_url_header.is_empty() && config.static_pod_url_header.is_empty());
    let insecure = has(args.kubelet_insecure_skip_tls_verify, config.kubelet_insecure_skip_tls_verify);
    let url_needed = (url, "a URL (--manifest-url)");
    let kubelet_needed = (kubelet, "a kubelet (--kubelet)");
    let api_needed = (api, "an API server (--kubeconfig or --api-server)");
    let either = |given: bool, configured: bool, name, needed| (has(given, configured), name, needed);
    let settings = [
        (headers, "staticPodURLHeader", url_needed),
        either(args.manifest_url_ca.is_some(), config.manifest_url_ca.is_some(), "manifestUrlCa", url_needed),
        either(
            args.http_check_frequency.is_some(),
            config.http_check_frequency.is_some(),
            "httpCheckFrequency",
            url_needed,
        ),
        either(
            args.file_check_frequency.is_some(),
            config.file_check_frequency.is_some(),
            "fileCheckFrequency",
            (file, "manifests (--pod-manifest-path)"),
        ),
        either(
            args.kubelet_token_file.is_some(),
            config.kubelet_token_file.is_some(),
            "kubeletTokenFile",
            kubelet_needed,
        ),
        either(args.kubelet_ca.is_some(), config.kubelet_ca.is_some(), "kubeletCa", kubelet_needed),
        (insecure, "kubeletInsecureSkipTlsVerify", kubelet_needed),
        either(
            args.kubelet_check_frequency.is_some(),
            config.kubelet_check_frequency.is_some(),
            "kubeletCheckFrequency",
            kubelet_needed,
        ),
        either(args.all_nodes, config.all_nodes, "allNodes", api_needed),
        either(args.keep_managed_fields, config.keep_managed_fields, "keepManagedFields", api_needed),
    ];
    let idle = settings.into_iter().filter(|(given, _, (is_there, _))| *given && !is_there);
    idle.map(|(_, name, (_, needed))| format!("{name} does nothing without {needed}")).collect()
}
