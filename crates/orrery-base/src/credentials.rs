//! Credentials in text for people: the userinfo of URLs is replaced.

/// Replacement of a secret.
pub const REDACTED: &str = "***";

/// Replaces userinfo: `https://name:word@host/` becomes `https://***@host/`.
pub fn mask_userinfo(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let ends = |c: char| c.is_whitespace() || "/?#'\"<>".contains(c);
        let end = after.find(ends).unwrap_or(after.len());
        let authority = &after[..end];
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                shown.push_str(REDACTED);
                shown.push('@');
                shown.push_str(host);
            }
            None => shown.push_str(authority),
        }
        rest = &after[end..];
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_text_is_unchanged() {
        for text in ["see https://example.org/a@b", "git@example.org:a/b.git", "a://", "x"] {
            assert_eq!(mask_userinfo(text), text);
        }
        assert_eq!(mask_userinfo("ssh://git@h/x b://c:d@e"), "ssh://***@h/x b://***@e");
    }
}
