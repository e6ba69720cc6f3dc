//! Signatures of requests to S3-compatible services: AWS Signature Version 4.

use std::collections::BTreeMap;

use orrery_base::hex::to_hex;
use sha2::{Digest as _, Sha256};

/// Block size of SHA-256 in bytes.
const BLOCK: usize = 64;

/// A request to sign. Headers have lower-case names, and are all signed.
#[derive(Clone, Debug)]
pub(crate) struct UnsignedRequest<'r> {
    pub(crate) method: &'r str,
    /// Encoded path.
    pub(crate) path: &'r str,
    pub(crate) headers: BTreeMap<&'r str, &'r str>,
    /// SHA-256 of the body in hexadecimal digits.
    pub(crate) body_digest: &'r str,
    /// Such as `20130524T000000Z`.
    pub(crate) date: &'r str,
    pub(crate) region: &'r str,
}

/// Returns the header `authorization`.
pub(crate) fn authorization(
    request: &UnsignedRequest<'_>,
    access_key: &str,
    secret_key: &str,
) -> String {
    let names: Vec<&str> = request.headers.keys().copied().collect();
    let names = names.join(";");
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!(
        "{}\n{}\n\n{headers}\n{names}\n{}",
        request.method, request.path, request.body_digest
    );
    let day = request.date.split('T').next().unwrap_or_default();
    let scope = format!("{day}/{}/s3/aws4_request", request.region);
    let digest = to_hex(&Sha256::digest(canonical));
    let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{digest}", request.date);
    let mut key = hmac(format!("AWS4{secret_key}").as_bytes(), day.as_bytes());
    for part in [request.region, "s3", "aws4_request"] {
        key = hmac(&key, part.as_bytes());
    }
    let signature = to_hex(&hmac(&key, text.as_bytes()));
    format!(
        "AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
}

/// HMAC with SHA-256 (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let part = |pad: u8, message: &[u8]| {
        let mut hash = Sha256::new();
        hash.update(block.map(|byte| byte ^ pad));
        hash.update(message);
        hash.finalize().to_vec()
    };
    part(0x5c, &part(0x36, message))
}

/// Formats seconds since 1970 like `20130524T000000Z`.
pub(crate) fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the documentation of Amazon S3.
    #[test]
    fn a_published_request_has_its_published_signature() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let date = date(1_369_353_600);
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", empty),
            ("x-amz-date", &date),
        ];
        let request = UnsignedRequest {
            method: "GET",
            path: "/test.txt",
            headers: headers.into(),
            body_digest: empty,
            date: &date,
            region: "us-east-1",
        };
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let found = authorization(&request, "AKIAIOSFODNN7EXAMPLE", secret);
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert!(found.ends_with(&format!("Signature={signature}")), "{found}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_709_251_199, "20240229T235959Z"),
            (4_102_444_800, "21000101T000000Z"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }
}
