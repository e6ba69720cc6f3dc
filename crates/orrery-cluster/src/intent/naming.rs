//! Names of nodes and hosts.

/// Maximum length of a label of a host name.
const LABEL_MAX: usize = 63;

/// Lower-case name without leading digits, as part of host names.
fn slug(name: &str) -> String {
    let letters = name.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let slug: String = letters.chars().map(letter).collect();
    slug.trim_end_matches('-').to_owned()
}

/// Name of a node, and of its agent: `web-1000`.
pub(super) fn node_name(cluster_name: &str, number: u64) -> String {
    let slug = slug(cluster_name);
    let slug = if slug.is_empty() { "node" } else { &slug };
    format!("{}-{number}", &slug[..slug.len().min(LABEL_MAX)])
}

/// Host name of a node: `shop71-1000.example.org`. The name of the cluster is shortened so that
/// the first label is short enough.
pub(super) fn hostname(cluster_name: &str, cluster: &str, number: u64, suffix: &str) -> String {
    let is_number = cluster.bytes().all(|byte| byte.is_ascii_digit());
    let id = if is_number { cluster.trim_start_matches('0') } else { cluster };
    let end = format!("{id}-{number}");
    let slug = slug(cluster_name);
    let room = LABEL_MAX.saturating_sub(end.len());
    format!("{}{end}.{suffix}", &slug[..slug.len().min(room)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_have_the_name_and_the_id_of_the_cluster() {
        let name = hostname("123i.am-a_clusTer", "1", 1002, "local");
        assert_eq!(name, "i-am-a-cluster1-1002.local");
        assert_eq!(hostname("shop", "00000071", 1000, "x.org"), "shop71-1000.x.org");
        assert_eq!(hostname("shop", "k3f9", 1000, "x.org"), "shopk3f9-1000.x.org");
        let long = hostname(&"a".repeat(200), "71", 1000, "local");
        assert_eq!(long.split('.').next().map(str::len), Some(63));
        assert!(long.ends_with("a71-1000.local"));
    }

    #[test]
    fn node_names_are_valid_names_of_agents() {
        assert_eq!(node_name("Web, shop", 1000), "web--shop-1000");
        assert_eq!(node_name("42", 1001), "node-1001");
        assert_eq!(node_name("ümlaut", 1001), "mlaut-1001");
    }
}
